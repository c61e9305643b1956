"""What the API speaks of, as plain values; `client_sdk.models` is where users find them."""
