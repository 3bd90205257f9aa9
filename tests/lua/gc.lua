-- SPDX-License-Identifier: Apache-2.0
-- The collector: steps on allocation, full cycles, finalizers of userdata
-- (__gc) and of cdata (ffi.gc). A finalizer runs on top of whatever allocated.
local truth = require("truth")
local go, add, clock = truth.go, truth.add, truth.clock
local ffi = require("ffi")
ffi.cdef "typedef struct { int x; } lb_box;"
local collectgarbage, newproxy, getmetatable = collectgarbage, newproxy,
  getmetatable
local new, on_gc, box = ffi.new, ffi.gc, ffi.typeof("lb_box")

local function spin(n) --: spin
  local s = 0
  for i = 1, n do s = s + i end
  return s
end

local function final_userdata(u) --: final_userdata
  spin(200)
end
local function final_cdata(c) --: final_cdata
  spin(150)
end

local function allocate(n) --: allocate
  local t = {}
  for i = 1, n do t[i % 50 + 1] = { i, "s" .. i } end
  return t
end

local proto_proxy = newproxy(true)
getmetatable(proto_proxy).__gc = final_userdata
local function use_proxies(n) --: use_proxies
  for i = 1, n do
    local t = { newproxy(proto_proxy), i }
  end
end

local function use_boxes(n) --: use_boxes
  for i = 1, n do
    local t = { on_gc(new(box), final_cdata), i }
  end
end

local function full() --: full
  collectgarbage("collect")
end

while go() do
  local t0 = clock()
  allocate(4000)
  local t1 = clock()
  use_proxies(400)
  local t2 = clock()
  use_boxes(300)
  local t3 = clock()
  full()
  local t4 = clock()
  add("allocate", t1 - t0)
  add("use_proxies", t2 - t1)
  add("use_boxes", t3 - t2)
  add("full", t4 - t3)
end
