//! The language tier: what the process tier answers, and an interpreter in front of it that has nothing of the host to give.

use std::collections::BTreeMap;

use policy::control::{Control, Interpreter, Source};
use policy::value::{Policy, Root, WorkspaceMode};
use policy::{ClauseId, Support};

use super::{held, process, unmet, when, when_some};
use crate::host::Capabilities;

/// What may be imported where the policy does not say; sorted.
pub const MODULES: &[&str] = &["json", "math", "re"];
/// What can be imported at all: modules that compute and ask nothing of a system; sorted.
const KNOWN: &[&str] = &[
    "base64",
    "binascii",
    "collections",
    "dataclasses",
    "datetime",
    "functools",
    "itertools",
    "json",
    "math",
    "re",
    "typing",
    "unicodedata",
];
/// Words of Python that name nothing else.
const PYTHON_WORDS: &[&str] = &[
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del",
    "elif", "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda", "nonlocal",
    "not", "or", "pass", "raise", "return", "try", "while", "with", "yield",
];
/// Words of JavaScript that name nothing else, and names that cannot be given another value.
const JAVASCRIPT_WORDS: &[&str] = &[
    "Infinity",
    "NaN",
    "__proto__",
    "await",
    "break",
    "case",
    "catch",
    "class",
    "const",
    "continue",
    "debugger",
    "default",
    "delete",
    "do",
    "else",
    "enum",
    "export",
    "extends",
    "false",
    "finally",
    "for",
    "function",
    "globalThis",
    "if",
    "implements",
    "import",
    "in",
    "instanceof",
    "interface",
    "let",
    "new",
    "null",
    "package",
    "private",
    "protected",
    "public",
    "return",
    "static",
    "super",
    "switch",
    "this",
    "throw",
    "true",
    "try",
    "typeof",
    "undefined",
    "var",
    "void",
    "while",
    "with",
    "yield",
];
/// The deepest call where the policy does not say.
const RECURSION: u32 = 1000;

/// Answers for one clause.
#[expect(clippy::too_many_lines, reason = "a table: one arm per clause")]
pub(crate) fn support(id: ClauseId, policy: &Policy, host: &Capabilities, source: Source) -> Support {
    let (fs, env, language) = (&policy.fs, &policy.env, &policy.language);
    let interpreter = || Control::Interpreter(limits(policy, source));
    // What those of languages with variables have not, and a program with WASI has.
    let no_environment = source != Source::Wasm;
    match id {
        ClauseId::Tier => match process(id, policy, host) {
            Support::Held(behind) => {
                Support::Held(policy::control::Controls::new(interpreter(), behind.iter().cloned()))
            }
            other @ (Support::NotAsked | Support::Unmet(_)) => other,
        },
        ClauseId::FsRoot if fs.root != Root::Host => lacks("a program of this tier sees no tree"),
        ClauseId::FsRead => when(!fs.read.is_empty(), || lacks(NO_FILES)),
        ClauseId::FsWrite => when(!fs.write.is_empty(), || lacks(NO_FILES)),
        ClauseId::FsHide => when(!fs.hide.is_empty(), || lacks(NO_FILES)),
        ClauseId::Workspace => when(policy.workspace.mode != WorkspaceMode::None, || lacks(NO_FILES)),
        ClauseId::FsExec => when(fs.exec.is_some(), || lacks("a program of this tier starts no other")),
        ClauseId::Commands => when(policy.commands.is_some(), || lacks("a program of this tier starts no other")),
        ClauseId::EnvPass if no_environment => when(!env.pass.is_empty(), || lacks(NO_ENVIRONMENT)),
        ClauseId::EnvSet if no_environment => when(!env.set.is_empty(), || lacks(NO_ENVIRONMENT)),
        ClauseId::ProcessTty => when(policy.process.tty, || lacks("a program of this tier has no terminal")),
        ClauseId::Inputs if let Some(name) = no_variable(policy, source) => unmet(
            "inputs/no-variable",
            format!("`{name}` cannot be a variable of a program of `{}`", source.backend()),
            "give the input another name, or use `--tier process` or a stronger one",
        ),
        ClauseId::LanguageModules => when_some(language.modules.as_ref(), |modules| {
            if source != Source::Python {
                return unmet(
                    "language.modules/python-alone",
                    format!("a program of `{}` imports no modules of Python", source.backend()),
                    "drop the clause, or use `backend = \"monty\"`",
                );
            }
            match modules.iter().find(|name| !KNOWN.contains(&name.as_str())) {
                Some(name) => unmet(
                    "language.modules/unknown",
                    format!("this tier has no module `{name}`"),
                    format!("name some of {}; others need `--tier process` or a stronger one", KNOWN.join(", ")),
                ),
                None => held(interpreter()),
            }
        }),
        ClauseId::LanguageSteps => when_some(language.steps, |_| match source {
            Source::Wasm => held(interpreter()),
            Source::Python | Source::JavaScript => unmet(
                "language.steps/not-counted",
                format!("`{}` counts no steps", source.backend()),
                "use `limits.cpu_time`, or `backend = \"wasm\"` for WebAssembly",
            ),
        }),
        ClauseId::LanguageRecursion => when_some(language.recursion, |_| match source {
            Source::Python | Source::Wasm => held(interpreter()),
            Source::JavaScript => unmet(
                "language.recursion/not-counted",
                "`quickjs` bounds the stack that calls take, and not their number",
                "drop the clause; calls end with a RangeError",
            ),
        }),
        ClauseId::Backend
        | ClauseId::Threat
        | ClauseId::Enforcer
        | ClauseId::FsRoot
        | ClauseId::FsSockets
        | ClauseId::FsLandlock
        | ClauseId::FsNoexec
        | ClauseId::FsTmp
        | ClauseId::FsShm
        | ClauseId::FsRun
        | ClauseId::FsProtect
        | ClauseId::LimitsWall
        | ClauseId::LimitsCpuTime
        | ClauseId::LimitsCpus
        | ClauseId::LimitsCpuset
        | ClauseId::LimitsMemory
        | ClauseId::LimitsPids
        | ClauseId::LimitsOpenFiles
        | ClauseId::LimitsFileSize
        | ClauseId::LimitsDisk
        | ClauseId::LimitsFiles
        | ClauseId::LimitsOutput
        | ClauseId::LimitsOver
        | ClauseId::LimitsIoRead
        | ClauseId::LimitsIoWrite
        | ClauseId::LimitsIdle
        | ClauseId::LimitsWarn
        | ClauseId::LimitsKill
        | ClauseId::NetMode
        | ClauseId::NetPresets
        | ClauseId::NetAllow
        | ClauseId::NetDeny
        | ClauseId::NetUnknown
        | ClauseId::NetPrograms
        | ClauseId::NetDns
        | ClauseId::NetCa
        | ClauseId::NetProxy
        | ClauseId::NetBandwidth
        | ClauseId::NetBytes
        | ClauseId::NetConnections
        | ClauseId::EnvPass
        | ClauseId::EnvSet
        | ClauseId::Inputs
        | ClauseId::Secrets
        | ClauseId::ProcessUser
        | ClauseId::ProcessHostname
        | ClauseId::ProcessUmask
        | ClauseId::ProcessLabel
        | ClauseId::ProcessDevices
        | ClauseId::SyscallsProfile
        | ClauseId::SyscallsAllow
        | ClauseId::SyscallsDeny
        | ClauseId::Tools
        | ClauseId::AuditPath
        | ClauseId::AuditRedact
        | ClauseId::AuditContent
        | ClauseId::AuditSync => process(id, policy, host),
    }
}

const NO_FILES: &str = "a program of this tier has no files";
const NO_ENVIRONMENT: &str = "a program of this language sees no environment; inputs are variables";

fn lacks(why: &str) -> Support {
    unmet("language/needs-process", why, "use `--tier process` or a stronger one, or drop the clause")
}

/// The first input whose name a program could not use as a variable, or which would hide what the program reaches the tier by.
fn no_variable(policy: &Policy, source: Source) -> Option<&str> {
    let (words, given) = match source {
        Source::Python => (PYTHON_WORDS, &["print", "tool"][..]),
        Source::JavaScript => (JAVASCRIPT_WORDS, &["console", "print", "tool"][..]),
        Source::Wasm => return None,
    };
    policy.inputs.keys().map(String::as_str).find(|name| words.contains(name) || given.contains(name))
}

/// What the interpreter is told.
fn limits(policy: &Policy, source: Source) -> Interpreter {
    let modules = match (source, &policy.language.modules) {
        (Source::Python, Some(modules)) => modules.clone(),
        (Source::Python, None) => MODULES.iter().map(|name| (*name).to_owned()).collect(),
        (Source::JavaScript | Source::Wasm, _) => Vec::new(),
    };
    let inputs = match source {
        // A value that was not given has no variable.
        Source::Python | Source::JavaScript => policy
            .inputs
            .iter()
            .filter(|(_, input)| input.value.is_some())
            .map(|(name, input)| (name.clone(), input.kind.as_str().to_owned()))
            .collect(),
        Source::Wasm => BTreeMap::new(),
    };
    Interpreter {
        source,
        modules,
        steps: policy.language.steps.filter(|_| source == Source::Wasm),
        recursion: match source {
            Source::Python | Source::Wasm => Some(policy.language.recursion.unwrap_or(RECURSION)),
            Source::JavaScript => None,
        },
        memory: policy.limits.memory.map(|bytes| bytes.0),
        inputs,
        tools: source != Source::Wasm && policy.tools.is_some(),
    }
}
