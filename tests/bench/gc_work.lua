-- SPDX-License-Identifier: Apache-2.0
-- Work that makes garbage: `luajit [-joff] gc_work.lua NAME`. For each line on
-- stdin it does the same amount and prints the CPU seconds that took.
local clock, write, read = os.clock, io.write, io.read
local newproxy, getmetatable = newproxy, getmetatable

local work = {}

-- Nothing but allocation: one step for each kilobyte.
function work.tables()
  local t = {}
  for i = 1, 3000000 do t[i % 50 + 1] = { i } end
  return t
end

-- A request of a web server: some strings, some tables, some other work.
function work.mixed()
  local sum = 0
  for i = 1, 60000 do
    local parts = {}
    for j = 1, 10 do parts[j] = "part " .. j .. " of " .. i % 97 end
    local text = table.concat(parts, ",")
    for word in text:gmatch("%d+") do sum = sum + tonumber(word) end
  end
  return sum
end

local proto = newproxy(true)
getmetatable(proto).__gc = function() end

function work.finalizers()
  local keep
  for i = 1, 100000 do keep = newproxy(proto) end
  return keep
end

io.stdout:setvbuf("line")
local f = work[arg[1]]
f()
write("ready\n")
while read("*l") do
  local begin = clock()
  f()
  write(string.format("%.6f\n", clock() - begin))
end
