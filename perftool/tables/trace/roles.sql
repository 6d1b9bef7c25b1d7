-- One row for each thing that a name says: what the files of vendors know of the names that the trace uses.
--
-- needs: _names
-- empty without: _names
-- column name: VARCHAR, slices.name
-- column cat: VARCHAR, slices.cat: runtime, cpu_op, user_annotation, kernel or memcpy
-- column role: VARCHAR, for a host call wait, copy, blocking_copy, graph_build, graph_cut, compile, fallback, graph_launch, release ...; for a kernel collective or wait; perftool/vendors/README.md lists them
SELECT name, cat, unnest(roles) AS role FROM _names ORDER BY name, cat, role
