-- SPDX-License-Identifier: Apache-2.0
-- Lua functions that C functions of the library call back: gsub's replacement,
-- sort's comparator, require's searcher and loader, load's reader, dofile.
-- Their C frames stand between the right Lua frames.
local truth = require("truth")
local go, add, clock = truth.go, truth.add, truth.clock
local gsub, sort, load = string.gsub, table.sort, load

local function spin(n) --: spin
  local s = 0
  for i = 1, n do s = s + i end
  return s
end

local function replace(word) --: replace
  spin(60)
  return word
end
local function run_gsub(n) --: run_gsub
  local s = 0
  for i = 1, n do s = s + #gsub("hello world foo bar", "%w+", replace) end
  return s
end

local function before(a, b) --: before
  spin(20)
  return a < b
end
local function run_sort(n) --: run_sort
  local list = {}
  for i = 1, n do
    for k = 1, 40 do list[k] = (k * 7919) % 41 end
    sort(list, before)
  end
  return list[1]
end

local function loader(name) --: loader
  spin(300)
  return { name = name }
end
local function searcher(name) --: searcher
  if name ~= "made.up" then return "\n\tnot made up" end
  spin(200)
  return loader
end
table.insert(package.loaders, 2, searcher)
local function run_require(n) --: run_require
  for i = 1, n do
    package.loaded["made.up"] = nil
    require("made.up")
  end
end

local pieces, at = { "local a = 1 ", "local b = 2 ", "return a + b" }, 0
local function reader() --: reader
  spin(100)
  at = at + 1
  return pieces[at]
end
local function run_load(n) --: run_load
  local s = 0
  for i = 1, n do
    at = 0
    local chunk = load(reader, "=pieces")
    s = s + chunk()
  end
  return s
end

local scale = jit.status() and 3 or 1
while go() do
  local t0 = clock()
  run_gsub(60 * scale)
  local t1 = clock()
  run_sort(4 * scale)
  local t2 = clock()
  run_require(60 * scale)
  local t3 = clock()
  run_load(40 * scale)
  local t4 = clock()
  add("run_gsub", t1 - t0)
  add("run_sort", t2 - t1)
  add("run_require", t3 - t2)
  add("run_load", t4 - t3)
end
