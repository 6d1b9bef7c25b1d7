-- One row for each name in the trace and each role that the vendor files assign to it.
--
-- needs: _name_roles
-- empty without: _name_roles
-- column name: VARCHAR, slices.name
-- column cat: VARCHAR, slices.cat: runtime, cpu_op, user_annotation, python_function, overhead, kernel or memcpy
-- column role: VARCHAR, for host calls: wait, copy, blocking_copy, graph_build, graph_cut, compile, fallback, graph_launch, release ...; for kernels: collective or wait; perftool/vendors/README.md lists them
SELECT name, cat, unnest(roles) AS role FROM _name_roles ORDER BY name, cat, role
