-- Included by all: the server's clock in milliseconds, the only clock that decides.
local function clock()
  local time = redis.call('TIME')
  return string.format('%d', time[1] * 1000 + math.floor(time[2] / 1000))
end
local function among(list, item)
  for word in string.gmatch(list, '%S+') do
    if word == item then return true end
  end
  return false
end
