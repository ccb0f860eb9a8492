-- Links a run and its retry both ways, where both are still there.
-- keys: record of the ended run, record of the new run
-- args: key of the ended run, key of the new run
-- result: 1 when they are linked, else 0
if redis.call('EXISTS', KEYS[1]) == 0 or redis.call('EXISTS', KEYS[2]) == 0 then return 0 end
local known = redis.call('HGET', KEYS[1], 'retried_as')
if not known or not among(known, ARGV[2]) then
  redis.call('HSET', KEYS[1], 'retried_as', known and (known .. ' ' .. ARGV[2]) or ARGV[2])
end
redis.call('HSET', KEYS[2], 'retry_of', ARGV[1])
return 1
