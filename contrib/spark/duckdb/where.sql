-- Where is time lost? By the columns of: set variable keys = ['node', 'program', 'path', 'cause', 'hour'];
-- calls and bytes are of the calls whose main cause it is, ns is the time of this cause in all calls, so that
-- sums over any rows are right.
with sums as (
  select node, date, hour, program, path, op, cause, sum(weight) as calls, sum(bytes * weight) as bytes,
         sum(columns(lambda name: name like '%\_ns' escape '\' and name not like 'predicted%'
             and name not in ('start_ns', 'duration_ns', 'low_ns', 'high_ns')) * weight)
  from calls where cause is not null group by all
),
rows as (
  select node, date, hour, program, path, op, cause, calls, bytes, 0 as ns from sums
  union all
  select node, date, hour, program, path, op, replace(regexp_extract(part, '(\w+)_ns', 1), '_', ' '), 0, 0, ns
  from (unpivot sums on columns(* exclude (node, date, hour, program, path, op, cause, calls, bytes))
        into name part value ns)
)
select columns(lambda key: list_contains(getvariable('keys'), key)),
       sum(calls)::bigint as calls, sum(bytes)::bigint as bytes, sum(ns)::bigint as ns
from rows group by all having ns > 0 or calls > 0 order by ns desc;
