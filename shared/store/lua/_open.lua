-- Included by accept, claim, release, finish and expire: what the runs of a thread asked people, and who answers.
-- open:<thread> and answered:<thread> are hashes, interrupt id -> {run, expires_at?, call?, by?}: run asked it, about its tool call; by answers it.
-- A claim leaves nothing open, so open questions are those of the thread's last claimed run.
local function questions(name)
  local flat, found = redis.call('HGETALL', name), {}
  for at = 1, #flat, 2 do found[flat[at]] = cjson.decode(flat[at + 1]) end
  return found
end
local function foreclosed(question, now)
  return question.expires_at and tonumber(question.expires_at) <= tonumber(now)
end
local function move(p, thread, from, to, id, question)
  local source, target = p .. from .. ':' .. thread, p .. to .. ':' .. thread
  local left = redis.call('PTTL', source)
  redis.call('HSET', target, id, cjson.encode(question))
  if left > redis.call('PTTL', target) then redis.call('PEXPIRE', target, left) end
  redis.call('HDEL', source, id)
end
-- Gives the answers of a run that did not get to its agent back; they stay reserved for it if it ``keeps`` them.
local function give_back(p, thread, key, answering, keeps)
  if not answering then return end
  for _, id in ipairs(cjson.decode(answering)) do
    local redeemed = redis.call('HGET', p .. 'answered:' .. thread, id)
    local question = redeemed and cjson.decode(redeemed)
    if question and question.by == key then
      move(p, thread, 'answered', 'open', id, question)
      redis.call('HDEL', p .. 'run:' .. question.run, 'answered_by')
    end
    local held = redis.call('HGET', p .. 'open:' .. thread, id)
    question = held and cjson.decode(held)
    if question and question.by == key and not keeps then
      question.by = nil
      redis.call('HSET', p .. 'open:' .. thread, id, cjson.encode(question))
    end
  end
end
