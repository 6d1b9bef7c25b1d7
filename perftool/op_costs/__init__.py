"""How many operations and bytes a framework op needs, by the shapes of its inputs. The only place of these formulas."""
