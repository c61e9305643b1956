"""The equations of share groups: device memory, host memory and time; and the rows that follow from a change."""
