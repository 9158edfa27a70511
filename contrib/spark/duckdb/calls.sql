-- The calls of `cawld --calls-to` as a view, for the questions beside this file. Before it:
--   set variable calls = '/var/lib/cawl/calls/**/*.parquet';
-- A row without weight (of `cawl-cli export --to parquet`) stands for itself. `bytes` are those of reads,
-- too. `run` is the daemon's start, since start_ns begins anew with each boot.
create or replace view calls as
select * replace (coalesce(weight, 1) as weight, coalesce(node, '') as node,
                  if(op in ('read', 'pread', 'fread') and kind = 'regular', size, bytes) as bytes),
       regexp_extract(filename, '-(\d{8}T\d{6}Z-[0-9a-f]{8})-\d+\.parquet$', 1) as run
from (
  select null::bigint as weight, null::varchar as node, null::varchar as date, null::varchar as hour
  where false
  union all by name
  from read_parquet(getvariable('calls'), hive_partitioning = true, hive_types_autocast = false,
                    union_by_name = true, filename = true)
);
