// What a program prints by, and its clock. It is given a function that writes a text, and its result is one that shows a value as a text.
// What it needs of the language it takes before there is a program that could put something else in its place.
(write) => {
    "use strict";
    const { call } = Function.prototype;
    const method = call.bind.bind(call);
    const { String: text, JSON: { stringify }, Array: { from }, Object: { is }, Set } = globalThis;
    const kindOf = method(Object.prototype.toString);
    const [whole, trimmed, split, includes] = [String.prototype.toWellFormed, String.prototype.trimEnd, String.prototype.split, String.prototype.includes].map((one) => method(one));
    const [add, has, remove] = [Set.prototype.add, Set.prototype.has, Set.prototype.delete].map((one) => method(one));

    // An object that lies in itself ends there; what JSON has no number for is a text.
    const asJson = (shown) => {
        const around = new Set();
        let innermost = null;
        return stringify(shown, function (_, value) {
            if (typeof value === "bigint") return `${value}n`;
            if (typeof value !== "object" || value === null) return value;
            for (; innermost !== null && innermost.value !== this; innermost = innermost.outer) remove(around, innermost.value);
            if (has(around, value)) return "[Circular]";
            add(around, value);
            innermost = { value, outer: innermost };
            return value;
        });
    };
    // The calls that led to it, without ours.
    const calls = (stack) => {
        let kept = "";
        if (typeof stack !== "string") return kept;
        const lines = split(stack, "\n");
        for (let at = 0; at < lines.length; at++) if (!includes(lines[at], "(fumehood:")) kept += `\n${lines[at]}`;
        return kept;
    };
    const object = (value) => {
        const kind = kindOf(value);
        switch (kind) {
            case "[object Error]":
                return trimmed(`${value.name}: ${value.message}${calls(value.stack)}`);
            case "[object Map]":
            case "[object Set]":
                return `${kind === "[object Map]" ? "Map" : "Set"} ${asJson(from(value))}`;
            case "[object Array]":
            case "[object Object]":
                return text(asJson(value));
            default:
                return text(value);
        }
    };
    const kindAlone = (value) => {
        try {
            return kindOf(value);
        } catch {
            return `[${typeof value}]`;
        }
    };
    // Whatever a value does when it is looked at: it is shown all the same.
    const shown = (value) => {
        try {
            switch (typeof value) {
                case "string":
                    return value;
                case "number":
                    return is(value, -0) ? "-0" : text(value);
                case "bigint":
                    return `${value}n`;
                case "function":
                    return `[Function: ${value.name}]`;
                case "object":
                    return value === null ? "null" : object(value);
                default:
                    return text(value);
            }
        } catch {
            return kindAlone(value);
        }
    };
    const print = (errors) => (...values) => {
        let line = "";
        for (let at = 0; at < values.length; at++) line += (at === 0 ? "" : " ") + shown(values[at]);
        write(errors, whole(line) + "\n");
    };
    const [out, error] = [print(false), print(true)];
    globalThis.console = { log: out, info: out, debug: out, warn: error, error };
    globalThis.print = out;
    // The engine's begins with the machine's own start.
    const { now } = performance;
    globalThis.performance = { now, timeOrigin: Date.now() - now() };
    return (value) => whole(text(shown(value)));
};
