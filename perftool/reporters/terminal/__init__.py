"""Reports for people at a terminal, and for the pipes behind them."""
