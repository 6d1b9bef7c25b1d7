-- Host slices of a communication library, with the id that they share with their kernels.
--
-- needs: slices, _name_roles
-- empty without: _name_roles.collective
-- column id: BIGINT, slices.id
-- column rank: INTEGER, distributed rank
-- column track: BIGINT, host track
-- column name: VARCHAR, for example nccl:all_reduce
-- column ts: BIGINT, start in ns
-- column end: BIGINT, end in ns
-- column external_id: BIGINT, id that the slice shares with its kernels
SELECT s.id, s.rank, s.track, s.name, s.ts, s."end",
       coalesce(int_arg(r.args, 'External id'), int_arg(r.args, 'external id')) AS external_id
FROM slices AS s
JOIN _name_roles AS n ON n.name = s.name AND n.cat = s.cat
JOIN raw AS r ON r.rowid = s.id
WHERE s.side = 'host' AND n.collective
