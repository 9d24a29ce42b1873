// What a program prints by. It is given a function that writes a text, and its result is one that shows a value as a text.
// What it needs of the language it takes before there is a program that could put something else in its place.
(write) => {
    "use strict";
    const { call } = Function.prototype;
    const method = call.bind.bind(call);
    const [kindOf, whole, trimmed] = [Object.prototype.toString, String.prototype.toWellFormed, String.prototype.trimEnd].map((one) => method(one));
    const { String: text, JSON: { stringify }, Array: { from } } = globalThis;

    const number = (_, value) => (typeof value === "bigint" ? `${value}n` : value);
    const object = (value) => {
        const kind = kindOf(value);
        try {
            switch (kind) {
                case "[object Error]":
                    return trimmed(`${value.name}: ${value.message}\n${value.stack}`);
                case "[object Map]":
                case "[object Set]":
                    return `${kind === "[object Map]" ? "Map" : "Set"} ${stringify(from(value), number)}`;
                case "[object Array]":
                case "[object Object]":
                    return text(stringify(value, number));
                default:
                    return text(value);
            }
        } catch {
            return kind;
        }
    };
    const shown = (value) => {
        switch (typeof value) {
            case "string":
                return value;
            case "bigint":
                return `${value}n`;
            case "function":
                return `[Function: ${value.name}]`;
            case "object":
                return value === null ? "null" : object(value);
            default:
                return text(value);
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
    return (value) => whole(text(shown(value)));
};
