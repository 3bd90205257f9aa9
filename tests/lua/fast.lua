-- SPDX-License-Identifier: Apache-2.0
-- Fast functions: written in assembler with a fallback in C, in C, or (since
-- 2.1) in bytecode. Each caller uses a few of its own, so that a fast function
-- under the wrong caller shows.
local truth = require("truth")
local go, add, clock = truth.go, truth.add, truth.clock
local byte, char, sub, rep = string.byte, string.char, string.sub, string.rep
local reverse, upper, find = string.reverse, string.upper, string.find
local concat, insert, remove = table.concat, table.insert, table.remove
local abs, max, sqrt = math.abs, math.max, math.sqrt
local tostring, tonumber, type = tostring, tonumber, type
local rawget, rawset, select = rawget, rawset, select
local setmetatable, getmetatable = setmetatable, getmetatable
local next, pairs, ipairs = next, pairs, ipairs

local function strings(n) --: strings
  local s = 0
  for i = 1, n do
    local text = char(65 + i % 20, 97, 98) .. "xyz"
    s = s + byte(text, 2) + #sub(text, 2, 4) + #reverse(text)
    s = s + #upper(text) + find(text, "y", 1, true) + #rep(text, 3)
  end
  return s
end

local function numbers(n) --: numbers
  local s = 0
  for i = 1, n do
    s = s + abs(-i) + max(i, 5, 9) + sqrt(i) + tonumber("12")
    s = s + #tostring(i)
  end
  return s
end

local function tables(n) --: tables
  local list = {}
  for i = 1, n do insert(list, i) end
  local s = #concat(list, ",")
  for i = 1, n do s = s + remove(list) end
  rawset(list, "key", 1)
  return s + rawget(list, "key") + select("#", 1, 2, 3)
end

local map = { a = 1, b = 2, c = 3, d = 4, 10, 20, 30, 40 }
local function iterate(n) --: iterate
  local s = 0
  for i = 1, n do
    for key, value in pairs(map) do s = s + value end
    for index, value in ipairs(map) do s = s + index end
    local key, value = next(map)
    s = s + value
    if getmetatable(setmetatable({}, map)) == map and type(key) then
      s = s + 1
    end
  end
  return s
end

local scale = jit.status() and 3 or 1
while go() do
  local t0 = clock()
  strings(600 * scale)
  local t1 = clock()
  numbers(1200 * scale)
  local t2 = clock()
  tables(1200 * scale)
  local t3 = clock()
  iterate(500 * scale)
  local t4 = clock()
  add("strings", t1 - t0)
  add("numbers", t2 - t1)
  add("tables", t3 - t2)
  add("iterate", t4 - t3)
end
