"""Operations and bytes that a framework op needs, from the shapes of its inputs. All such formulas are here."""
