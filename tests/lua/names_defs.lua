-- SPDX-License-Identifier: Apache-2.0
-- Functions defined in every way that has a name of its own. For each one a
-- line goes to stdout, then "ready"; the process stays until stdin ends.
--	D addr name line	named by its definition (D: the parent is alive)
--	P addr name line	parent collected, named by a table or an upvalue
--	C addr name line caller_addr pos   named by a call, as the VM names it
--	M addr name line	first record to be given: the main chunk
--	T addr			a thread
--	L addr name		a builtin that is written in bytecode
--	B addr name		a fast function
local util = require("jit.util")
local dir = arg[0]:match("^(.*/)") or ""

local function line_of(f)
	return debug.getinfo(f, "S").linedefined
end

local keep = {} -- a dead function has no name

local function say(kind, f, name, ...)
	keep[#keep + 1] = f
	io.write(table.concat({ kind, ("%p"):format(f), name, line_of(f), ... },
		"\t"), "\n")
end

local function expect(f, name)
	say("D", f, name)
end

say("M", debug.getinfo(1, "f").func, "main")

-- ---- definitions ----

local function plain() end
expect(plain, "plain")
local assigned = function() end
expect(assigned, "assigned")
local first, second = function() end, function() end
expect(first, "first")
expect(second, "second")
local later
later = function() end
expect(later, "later")
local swap_a, swap_b
swap_a, swap_b = function() end, function() end
expect(swap_a, "swap_a")
expect(swap_b, "swap_b")

function global_one() end
expect(global_one, "global_one")
global_two = function() end
expect(global_two, "global_two")

local M = {}
function M.handle() end
expect(M.handle, "M.handle")
M.other = function() end
expect(M.other, "M.other")
M.sub = { deep = {} }
function M.sub.deep.er() end
expect(M.sub.deep.er, "M.sub.deep.er")
function M:method() return self end
expect(M.method, "M:method")
M.explicit = function(self) return self end
expect(M.explicit, "M:explicit")
function M.sub.deep:down() return self end
expect(M.sub.deep.down, "M.sub.deep:down")
M["odd key; here"] = function() end
expect(M["odd key; here"], "M.odd key\\x3b here")

global_table = { sub = {} }
function global_table.fn() end
expect(global_table.fn, "global_table.fn")
function global_table.sub:go() return self end
expect(global_table.sub.go, "global_table.sub:go")

local handlers = {
	on_open = function() end,
	[7] = function() end,
	on_close = function() end,
	nested = { cb = function() end, deeper = { cb2 = function() end } },
	test = first and second,
	after_test = function() end,
}
expect(handlers.on_open, "handlers.on_open")
expect(handlers.on_close, "handlers.on_close")
expect(handlers[7], "?")
expect(handlers.nested.cb, "handlers.nested.cb")
expect(handlers.nested.deeper.cb2, "handlers.nested.deeper.cb2")
expect(handlers.after_test, "handlers.after_test")
global_handlers = { on_x = function() end }
expect(global_handlers.on_x, "global_handlers.on_x")

M.handlers = { on_y = function() end }
expect(M.handlers.on_y, "M.handlers.on_y")

local up
local function setter()
	up = function() end
	M.from_below = function() end
	function M:below() return self end
	function M.sub.via_upvalue() end
end
setter()
expect(setter, "setter")
expect(up, "up")
expect(M.from_below, "M.from_below")
expect(M.below, "M:below")
expect(M.sub.via_upvalue, "M.sub.via_upvalue")

local default = M.no_such or function() end
expect(default, "default")
M.lazy = M.lazy or function() end
expect(M.lazy, "M.lazy")
local either = arg[9] and function() end or function() end
expect(either, "either")

local function returned()
	return function() end
end
expect(returned(), "?")
local function returned_table()
	return { exported = function() end }
end
expect(returned_table().exported, "exported")

local seen
local function call_with(f, t)
	seen = f or t
	return f
end
call_with(function() end)
expect(seen, "?")
call_with(nil, { z = function() end })
expect(seen.z, "z")
M.wrapped = call_with(function() end)
expect(M.wrapped, "?")
local anonymous = (function()
	return debug.getinfo(1, "f").func
end)()
expect(anonymous, "?")

do
	local scoped = function() end
	expect(scoped, "scoped")
end
for _ = 1, 1 do
	local in_loop = function() end
	expect(in_loop, "in_loop")
end
local shadow = function() end
expect(shadow, "shadow")
do
	local shadow = function() return shadow end
	expect(shadow, "shadow")
	local zero_length = function()
		return debug.getinfo(1, "f").func
	end
	expect(zero_length, "zero_length")
end

local Class = setmetatable({}, { __call = function() end })
expect(getmetatable(Class).__call, "__call")
local mt = { __index = function() end, __add = function() end }
expect(mt.__index, "mt.__index")
expect(mt.__add, "mt.__add")
function mt.__tostring(self) return self end
expect(mt.__tostring, "mt:__tostring")

local function outer()
	local function middle()
		local function inner() end
		return inner
	end
	return middle
end
expect(outer, "outer")
expect(outer(), "middle")
expect(outer()(), "inner")

-- more constants than an operand can index
local many = { "local t = {}\n" }
for i = 1, 300 do
	many[#many + 1] = ("t.a%d = 'b%d'\n"):format(i, i)
end
many[#many + 1] = "function t.far() end\nfunction t:further() end\n"
many[#many + 1] = "return t, debug.getinfo(1, 'f').func"
local far, far_main = assert(loadstring(table.concat(many), "=many"))()
say("M", far_main, "main")
expect(far.far, "t.far")
expect(far.further, "t:further")

local stripped = loadstring(string.dump(loadstring([[
	local t = {}
	function t.field() end
	function t:method() end
	local function lost() end
	function g_stripped() end
	return t, lost, debug.getinfo(1, "f").func
]], "@stripped.lua"), true))
local s_table, s_lost, s_main = stripped()
say("M", s_main, "main")
expect(s_table.field, "field")
expect(s_table.method, "method")
expect(s_lost, "?")
expect(g_stripped, "g_stripped")

-- ---- places ----

local placed = dofile(dir .. "names_module.lua")
package.loaded["app.util"] = placed.util
package.loaded["app.callable"] = placed.callable
package.loaded["app/slashed"] = placed.slashed
collectgarbage()
collectgarbage()
for name, f in pairs(placed.expected) do
	say("P", f, name)
end
placed = nil

-- ---- calls ----

-- Called with its caller's function; the VM says how it was called.
local function probe()
	return function()
		local me = debug.getinfo(1, "nf")
		local caller = debug.getinfo(2, "f").func
		local pos
		local at = debug.getinfo(2, "l").currentline
		for pc = 1, 1000 do
			local info = util.funcinfo(caller, pc)
			if not util.funcbc(caller, pc) then
				break
			end
			if info.currentline == at then
				pos = pos or {}
				pos[#pos + 1] = pc
			end
		end
		-- the call is the last instruction but one or two of its line
		io.write("C\t", ("%p"):format(me.func), "\t", me.name or "?",
			"\t", line_of(me.func), "\t", ("%p"):format(caller),
			"\t", table.concat(pos, ","), "\n")
		return nil
	end
end

local upvalue_call = probe()
global_call = probe()
local object = { field_call = probe(), method_call = probe() }
local meta = {}
for _, event in ipairs({ "__index", "__newindex", "__add", "__concat",
	"__unm", "__lt", "__le", "__eq", "__len", "__call", "__mul",
	"__pow", "__mod" }) do
	meta[event] = probe()
end
local x = setmetatable({}, meta)
local y = setmetatable({}, meta)

local function calls()
	local local_call = probe()
	local_call()
	upvalue_call()
	global_call()
	object.field_call()
	object:method_call()
	local moved = local_call
	local r = x.anything
	x.anything = 1
	r = x + 1
	r = x * y
	r = x ^ 2
	r = 5 % x
	r = x .. "s"
	r = -x
	r = x < y
	r = x <= y
	r = x == y
	for _ in probe() do
		break
	end
	return r, moved
end
calls()

-- ---- fast functions ----

local wrapped = coroutine.wrap(function()
	coroutine.yield()
end)
wrapped()
local gmatch = ("x"):gmatch(".")
local ipairs_aux = (ipairs({}))
for name, f in pairs({
	["string.gsub"] = string.gsub, ["print"] = print, ["pcall"] = pcall,
	["next"] = next, ["table.concat"] = table.concat,
	["math.fmod"] = math.fmod, ["io.write"] = io.write,
	["file:read"] = io.stdout.read, ["file:write"] = io.stdout.write,
	["coroutine.wrap"] = coroutine.wrap, ["bit.band"] = bit.band,
	["string.gmatch"] = string.gmatch, ["tostring"] = tostring,
	["coroutine.wrap_aux"] = wrapped, ["string.gmatch_aux"] = gmatch,
	["ipairs_aux"] = ipairs_aux, ["jit.on"] = jit.on,
}) do
	io.write("B\t", ("%p"):format(f), "\t", name, "\n")
end
my_alias = string.gsub
my_remove = table.remove
for name, f in pairs({ ["table.remove"] = table.remove,
	["table.foreach"] = table.foreach, ["math.deg"] = math.deg,
	["string.len"] = string.len, }) do
	io.write("L\t", ("%p"):format(f), "\t", name, "\n")
end
io.write("T\t", ("%p"):format(coroutine.create(plain)), "\n")
io.write("ready\n")
io.flush()
io.read()
return handlers, mt, Class, M
