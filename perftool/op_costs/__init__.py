"""Operations and bytes of framework ops, from the shapes of their inputs."""
