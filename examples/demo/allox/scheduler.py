"""`python -m examples.demo.allox.scheduler serve ...`: the scheduler, which also knows the policy `shortest`."""

from scheduler_service.__main__ import main
from scheduler_service.policies.registry import Entry, register

if __name__ == "__main__":
    register("shortest", Entry("the shortest job first, where it is fastest", "examples.demo.allox.shortest:stages", True))
    main()
