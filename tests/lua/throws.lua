-- SPDX-License-Identifier: Apache-2.0
-- Errors through each kind of frame. What it prints is the same with and
-- without probes, or the probes have done harm. Protocol as in calls.lua.
local function thrower(what)
  error(what, 0)
end
local function through(what)
  thrower(what)
end
local cases = {
  plain = function() through("plain") end,
  vararg = function(...) through("vararg", ...) end,
  gsub = function() string.gsub("abc", ".", through) end,
  sort = function() table.sort({ 3, 2, 1 }, through) end,
  meta = function()
    return setmetatable({}, { __index = function(_, k) through(k) end }).key
  end,
  wrap = function() coroutine.wrap(through)("wrap") end,
  nested = function()
    pcall(through, "inner")
    through("outer")
  end,
  builtin = function() math.abs({}) end,
  handler = function()
    assert(xpcall(function() through("in xpcall") end, function(e)
      return e .. " handled"
    end))
  end,
  deep = function()
    local function deep(n) return n == 0 and through("deep") or 1 + deep(n - 1) end
    return deep(150)
  end,
  overflow = function()
    local function forever() return 1 + forever() end
    return forever()
  end,
}
local names = {}
for name in pairs(cases) do names[#names + 1] = name end
table.sort(names)

io.write("ready\n")
io.flush()
io.read()
for round = 1, 50 do
  if round == 2 then -- some 30000 calls each time
    cases.overflow = cases.plain
  end
  for _, name in ipairs(names) do
    local ok, what = pcall(cases[name])
    what = tostring(what):gsub("^.*stack overflow.*$", "stack overflow")
    io.write(name, " ", tostring(ok), " ", what, "\n")
  end
end
io.write("done\n")
io.flush()
io.read("*a")
