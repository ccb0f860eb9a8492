-- Included by accept, claim, append and finish: counts an event for its minute and for ever.
local function tally(p, now, field, by)
  local minute = p .. 'stats:' .. string.format('%d', math.floor(now / 60000))
  if redis.call('HINCRBY', minute, field, by) == by then redis.call('EXPIRE', minute, 172800) end
  redis.call('HINCRBY', p .. 'totals', field, by)
end
local function observe(p, now, name, ms)
  -- In milliseconds; stats.py has the same list.
  local bounds = {5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000, 60000, 120000, 300000, 600000,
    1800000, 3600000}
  local slot = #bounds
  for at, bound in ipairs(bounds) do
    if ms <= bound then
      slot = at - 1
      break
    end
  end
  tally(p, now, name .. ':' .. slot, 1)
  tally(p, now, name .. ':sum', math.max(0, math.floor(ms)))
end
