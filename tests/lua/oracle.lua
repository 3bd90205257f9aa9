-- SPDX-License-Identifier: Apache-2.0
-- For oracle.c: random descents through every way of calling, with mark() at
-- the bottom and now and then on the way. What the stack is, the host knows;
-- nothing here has to be written down.
local truth = require("truth")
local go, clock = truth.go, truth.clock
local mark, enter, leave = mark, enter, leave
local c_call, c_pcall, c_cpcall = c_call, c_pcall, c_cpcall
local c_xpcall, c_error = c_xpcall, c_error
local create, resume = coroutine.create, coroutine.resume
local wrap, yield = coroutine.wrap, coroutine.yield
local gsub, sort = string.gsub, table.sort
local ffi = require("ffi")
ffi.cdef "void qsort(void *, size_t, size_t, int (*)(const int *, const int *));"

local random = math.random
math.randomseed(1)

local descend

local ways = {}
local function way(f) ways[#ways + 1] = f end

way(function(n) descend(n) end)
way(function(n)
  local function inner(...)
    descend(select("#", ...) > 3 and n or 0)
    return ...
  end
  inner(1, 2, 3, inner)
end)
way(function(n, ...) return descend(n) end) -- a tail call
way(function(n) pcall(descend, n) end)
way(function(n)
  -- Only what throws here itself: an error of a callee would unwind the lot.
  pcall(function()
    descend(n)
    error("thrown")
  end)
end)
way(function(n)
  xpcall(function() error("handled") end, function() descend(n) end)
end)
way(function(n)
  xpcall(function() return n + nil end, function() descend(n) end)
end)
way(function(n) c_call(descend, n) end)
way(function(n) c_pcall(descend, n) end)
way(function(n) c_cpcall(descend, n) end)
way(function(n)
  c_xpcall(function() c_error("by C") end, n, function() descend(n) end)
end)
way(function(n)
  pcall(function()
    c_call(function()
      descend(n)
      c_error("through C")
    end, n)
  end)
end)
way(function(n) gsub("ab", "a", function() descend(n) end) end)
way(function(n)
  local done
  sort({ 3, 1 }, function(a, b)
    if not done then done = true; descend(n) end
    return a < b
  end)
end)

local mt = {}
function mt.__index(t, key) descend(key - 100) end
function mt.__newindex(t, key) descend(key - 100) end
function mt.__add(t, n) descend(n) end
function mt.__concat(t, n) descend(n) return "" end
function mt.__eq(a, b) descend(a.n) return true end
function mt.__lt(a, b) descend(a.n) return true end
function mt.__call(t, n) descend(n) end
function mt.__tostring(t) descend(t.n) return "" end
local function object(n)
  return setmetatable({ n = n }, mt)
end
way(function(n) local x = object(n)[n + 100] end)
way(function(n) object(n)[n + 100] = 1 end)
way(function(n) local x = object(n) + n end)
way(function(n) local x = object(n) .. n end)
way(function(n) local x = object(n) == object(n) end)
way(function(n) local x = object(n) < object(n) end)
way(function(n) object(n)(n) end)
way(function(n) tostring(object(n)) end)

way(function(n)
  local co = create(function(m) descend(m) yield() descend(m) end)
  enter()
  resume(co, n)
  resume(co)
  leave()
end)
way(function(n)
  local co = wrap(function(m) descend(m) end)
  enter()
  co(n)
  leave()
end)
way(function(n)
  local step = wrap(function() yield(n) descend(n) end)
  enter()
  step()
  leave()
  descend(0)
  enter()
  step()
  leave()
end)

-- A finalizer runs under whoever lets go.
way(function(n)
  local proxy = newproxy(true)
  getmetatable(proxy).__gc = function() descend(n) end
  proxy = nil
  collectgarbage()
end)

local array = ffi.new("int[2]", 2, 1)
local sort_n, sorted
local callback = ffi.cast("int (*)(const int *, const int *)", function(a, b)
  if not sorted then sorted = true; descend(sort_n) end
  return 0
end)
local function by_callback(n)
  sort_n, sorted = n, false
  ffi.C.qsort(array, 2, 4, callback)
end
jit.off(by_callback)
way(by_callback)

-- n is what is left of the depth.
function descend(n)
  if n <= 0 then
    mark()
  else
    ways[random(#ways)](n - 1)
    if random(8) == 1 then mark() end
  end
end

while go() do
  for i = 1, 10 do descend(random(0, 9)) end
end
