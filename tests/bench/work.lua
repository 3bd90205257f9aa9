-- SPDX-License-Identifier: Apache-2.0
-- Endless loops to be sampled: `luajit [-joff] work.lua NAME`.
local write, sort = io.write, table.sort

local function spin(n)
  local s = 0
  for i = 1, n do s = s + i % 7 end
  return s
end

-- Not a tail call, but for the last one.
local function deep(n)
  if n == 1 then return spin(2000) end
  return deep(n - 1) + 1
end

local function square(x) return x * x + 1 end
local function curve(x)
  local y = square(x) + square(x + 1)
  if y > 50 then y = y * 0.5 end
  return y
end

local function loop()
  local s = 0
  for i = 1, 100000 do s = s + curve(i * 0.01) end
  return s
end

local function before(a, b) return a < b end
local list = {}
local function sorted()
  for i = 1, 200 do list[i] = (i * 7919) % 211 end
  sort(list, before)
end

local function fib(n)
  if n < 2 then return n end
  return fib(n - 1) + fib(n - 2)
end

local work = {
  -- main, this one, deep(98) to deep(2), spin: 100 frames
  recurse = function()
    local s = deep(98)
    return s
  end,
  loop = loop,
  sort = sorted,
  fib = function() return fib(24) end,
}

local run = assert(work[arg[1]], "no such work")
write("ready\n")
io.stdout:flush()
while true do run() end
