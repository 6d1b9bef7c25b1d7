"""One module per output format. A reporter turns a Report into text and decides nothing."""
