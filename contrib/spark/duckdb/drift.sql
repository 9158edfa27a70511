-- Which machines drift from their profile? Observed over predicted time, by node and the columns of:
--   set variable keys = ['op'];        -- or 'cause' (the main one of each call), 'date', 'hour'
-- `off`: the node's ratio over the fleet's median; `beyond_ns`: what its calls took beyond that median.
with sums as (
  select node, columns(lambda key: list_contains(getvariable('keys'), key)),
         sum(weight)::bigint as calls,
         sum(duration_ns * weight)::bigint as observed_ns, sum(predicted_ns * weight)::bigint as predicted_ns
  from calls where predicted_ns is not null and cause is not null group by all having predicted_ns > 0
),
ratios as (select *, observed_ns / predicted_ns as ratio from sums),
fleet as (
  select columns(lambda key: list_contains(getvariable('keys'), key)), median(ratio) as fleet
  from ratios group by all
)
select *, ratio / fleet as off, observed_ns - round(predicted_ns * fleet)::bigint as beyond_ns
from ratios natural join fleet order by abs(beyond_ns) desc;
