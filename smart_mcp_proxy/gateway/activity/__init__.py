"""The record of activity: searches, calls, decisions and the clients behind them."""
