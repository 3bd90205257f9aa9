-- SPDX-License-Identifier: Apache-2.0
-- Plain Lua calls, four deep, two ways to the same leaf. With -joff this is
-- the interpreter alone; no instruction here needs a helper written in C.
local truth = require("truth")
local go, add, clock = truth.go, truth.add, truth.clock

local function leaf(n) --: leaf
  local s = 0
  for i = 1, n do s = s + i end
  return s
end

local function left(n) --: left
  return leaf(n) + 1
end

local function right(n) --: right
  local s = leaf(n)
  for i = 1, n do s = s - i end
  return s
end

local function middle(n) --: middle
  local s = 0
  for i = 1, 20 do s = s + left(n) + right(n) end
  return s
end

local function outer() --: outer
  return middle(200) + middle(300)
end

while go() do
  local t = clock()
  for i = 1, 3 do outer() end
  add("outer", clock() - t)
end
