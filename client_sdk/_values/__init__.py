"""The API's messages as plain values; `client_sdk.models` exports them to users."""
