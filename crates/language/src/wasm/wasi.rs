//! WASI preview 1 with three streams, arguments, variables, clocks and random bytes, and no file, socket or clock of waiting.
//!
//! Every other call of the interface is there and says `ENOTCAPABLE`, as it does for a program that was given no folder.

#![expect(clippy::map_err_ignore, reason = "WASI has numbers for errors and no words")]

use std::io::{Read as _, Write as _};

use wasmi::{Caller, Error, Extern, FuncType, ImportType, Linker, Memory, Module, Val, ValType};

use super::StoreData;

const MODULE: &str = "wasi_snapshot_preview1";
const SUCCESS: i32 = 0;
const BADF: i32 = 8;
const FAULT: i32 = 21;
const INVAL: i32 = 28;
const IO: i32 = 29;
const SPIPE: i32 = 70;
const NOTCAPABLE: i32 = 76;
/// Most bytes that one call reads or writes.
const MAX_CHUNK: usize = 1 << 20;
/// Most pieces of one call.
const MAX_PIECES: u32 = 1024;

/// What the calls know.
#[derive(Debug)]
pub(crate) struct State {
    args: Vec<Vec<u8>>,
    variables: Vec<Vec<u8>>,
}

impl State {
    /// A program with these arguments, and the variables of this process, which are the policy's.
    pub(crate) fn new(args: Vec<String>) -> Self {
        use std::os::unix::ffi::OsStringExt as _;
        let variable = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            let mut bytes = name.into_vec();
            bytes.push(b'=');
            bytes.extend(value.into_vec());
            bytes
        };
        Self {
            args: args.into_iter().map(String::into_bytes).collect(),
            variables: std::env::vars_os().map(variable).collect(),
        }
    }
}

/// The memory of the program.
struct Inside<'a, 'c> {
    caller: &'a mut Caller<'c, StoreData>,
    memory: Memory,
}

/// What a call answers: nothing, or an error number of WASI.
type WasiResult = Result<(), i32>;

impl<'a, 'c> Inside<'a, 'c> {
    fn of(caller: &'a mut Caller<'c, StoreData>) -> Result<Self, i32> {
        match caller.get_export("memory") {
            Some(Extern::Memory(memory)) => Ok(Self { caller, memory }),
            Some(_) | None => Err(FAULT),
        }
    }

    fn bytes(&mut self, at: u32, length: usize) -> Result<&mut [u8], i32> {
        let start = usize::try_from(at).map_err(|_| FAULT)?;
        let end = start.checked_add(length).ok_or(FAULT)?;
        self.memory.data_mut(&mut *self.caller).get_mut(start..end).ok_or(FAULT)
    }

    fn put(&mut self, at: u32, bytes: &[u8]) -> WasiResult {
        self.bytes(at, bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    fn put_u32(&mut self, at: u32, value: usize) -> WasiResult {
        let value = u32::try_from(value).map_err(|_| INVAL)?;
        self.put(at, &value.to_le_bytes())
    }

    fn u32_at(&mut self, at: u32) -> Result<u32, i32> {
        let mut word = [0; 4];
        word.copy_from_slice(self.bytes(at, 4)?);
        Ok(u32::from_le_bytes(word))
    }

    /// Where the pieces of a scattered read or write lie.
    fn pieces(&mut self, at: u32, count: u32) -> Result<Vec<(u32, usize)>, i32> {
        if count > MAX_PIECES {
            return Err(INVAL);
        }
        let mut left = MAX_CHUNK;
        let mut list = Vec::new();
        for index in 0..count {
            let place = index.checked_mul(8).and_then(|offset| at.checked_add(offset)).ok_or(FAULT)?;
            let start = self.u32_at(place)?;
            let length = self.u32_at(place.checked_add(4).ok_or(FAULT)?)?;
            let length = usize::try_from(length).map_err(|_| FAULT)?;
            self.bytes(start, length)?;
            let taken = length.min(left);
            left = left.saturating_sub(taken);
            list.push((start, taken));
            if taken < length {
                break;
            }
        }
        Ok(list)
    }
}

fn answer(caller: &mut Caller<'_, StoreData>, call: impl FnOnce(&mut Inside<'_, '_>) -> WasiResult) -> i32 {
    let done = Inside::of(caller).and_then(|mut inside| call(&mut inside));
    done.map_or_else(|errno| errno, |()| SUCCESS)
}

/// The calls that do something.
const GIVEN: [&str; 17] = [
    "args_get",
    "args_sizes_get",
    "environ_get",
    "environ_sizes_get",
    "fd_read",
    "fd_write",
    "fd_close",
    "fd_seek",
    "fd_fdstat_get",
    "fd_prestat_get",
    "fd_prestat_dir_name",
    "clock_time_get",
    "clock_res_get",
    "random_get",
    "sched_yield",
    "proc_exit",
    "fd_fdstat_set_flags",
];
/// The calls that need a file, a socket or a signal, each with its parameters: `w` a word, `l` a long one. All of them answer with a
/// word.
const NOT_GIVEN: [(&str, &str); 29] = [
    ("fd_advise", "wllw"),
    ("fd_allocate", "wll"),
    ("fd_datasync", "w"),
    ("fd_fdstat_set_rights", "wll"),
    ("fd_filestat_get", "ww"),
    ("fd_filestat_set_size", "wl"),
    ("fd_filestat_set_times", "wllw"),
    ("fd_pread", "wwwlw"),
    ("fd_pwrite", "wwwlw"),
    ("fd_readdir", "wwwlw"),
    ("fd_renumber", "ww"),
    ("fd_sync", "w"),
    ("fd_tell", "ww"),
    ("path_create_directory", "www"),
    ("path_filestat_get", "wwwww"),
    ("path_filestat_set_times", "wwwwllw"),
    ("path_link", "wwwwwww"),
    ("path_open", "wwwwwllww"),
    ("path_readlink", "wwwwww"),
    ("path_remove_directory", "www"),
    ("path_rename", "wwwwww"),
    ("path_symlink", "wwwww"),
    ("path_unlink_file", "www"),
    ("poll_oneoff", "wwww"),
    ("proc_raise", "w"),
    ("sock_accept", "www"),
    ("sock_recv", "wwwwww"),
    ("sock_send", "wwwww"),
    ("sock_shutdown", "ww"),
];

/// Gives a module what it imports; what it wants beyond WASI is named, and not given.
///
/// # Errors
/// A call is defined twice.
pub(crate) fn link(linker: &mut Linker<StoreData>, module: &Module) -> Result<Option<String>, Error> {
    texts(linker)?;
    streams(linker)?;
    circumstances(linker)?;
    for (name, words) in NOT_GIVEN {
        let takes = words.bytes().map(|word| if word == b'l' { ValType::I64 } else { ValType::I32 });
        linker.func_new(MODULE, name, FuncType::new(takes, [ValType::I32]), |_, _, results| {
            if let Some(first) = results.first_mut() {
                *first = Val::I32(NOTCAPABLE);
            }
            Ok(())
        })?;
    }
    let given = |import: &ImportType<'_>| {
        import.module() == MODULE
            && (GIVEN.contains(&import.name()) || NOT_GIVEN.iter().any(|(name, _)| *name == import.name()))
    };
    Ok(module.imports().find(|import| !given(import)).map(|import| named(import.module(), import.name())))
}

fn named(module: &str, name: &str) -> String {
    format!("{module:?}.{name:?}")
}

/// Arguments and variables.
fn texts(linker: &mut Linker<StoreData>) -> Result<(), Error> {
    type Which = fn(&State) -> &Vec<Vec<u8>>;
    let both: [(&str, &str, Which); 2] = [
        ("args_sizes_get", "args_get", |state| &state.args),
        ("environ_sizes_get", "environ_get", |state| &state.variables),
    ];
    for (sizes, get, which) in both {
        linker.func_wrap(MODULE, sizes, move |mut caller: Caller<'_, StoreData>, count: u32, size: u32| -> i32 {
            let list = which(&caller.data().state);
            let (many, all) = (list.len(), list.iter().map(|text| text.len().saturating_add(1)).sum());
            answer(&mut caller, |inside| {
                inside.put_u32(count, many)?;
                inside.put_u32(size, all)
            })
        })?;
        linker.func_wrap(MODULE, get, move |mut caller: Caller<'_, StoreData>, places: u32, text: u32| -> i32 {
            let list = which(&caller.data().state).clone();
            answer(&mut caller, |inside| {
                let (mut place, mut at) = (places, text);
                for text in list {
                    inside.put(place, &at.to_le_bytes())?;
                    inside.put(at, &text)?;
                    let end = u32::try_from(text.len()).ok().and_then(|length| at.checked_add(length)).ok_or(FAULT)?;
                    inside.put(end, &[0])?;
                    at = end.checked_add(1).ok_or(FAULT)?;
                    place = place.checked_add(4).ok_or(FAULT)?;
                }
                Ok(())
            })
        })?;
    }
    Ok(())
}

/// The three streams; no other descriptor is open, and no folder is there.
fn streams(linker: &mut Linker<StoreData>) -> Result<(), Error> {
    linker.func_wrap(
        MODULE,
        "fd_write",
        |mut caller: Caller<'_, StoreData>, fd: i32, at: u32, count: u32, done: u32| -> i32 {
            answer(&mut caller, |inside| {
                let mut written = 0_usize;
                for (start, length) in inside.pieces(at, count)? {
                    let bytes = inside.bytes(start, length)?;
                    let wrote = match fd {
                        1 => std::io::stdout().lock().write_all(bytes),
                        2 => std::io::stderr().lock().write_all(bytes),
                        _ => return Err(BADF),
                    };
                    wrote.map_err(|_| IO)?;
                    written = written.saturating_add(length);
                }
                inside.put_u32(done, written)
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "fd_read",
        |mut caller: Caller<'_, StoreData>, fd: i32, at: u32, count: u32, done: u32| -> i32 {
            answer(&mut caller, |inside| {
                if fd != 0 {
                    return Err(BADF);
                }
                let mut read = 0_usize;
                for (start, length) in inside.pieces(at, count)? {
                    let came = std::io::stdin().lock().read(inside.bytes(start, length)?).map_err(|_| IO)?;
                    read = read.saturating_add(came);
                    if came < length {
                        break;
                    }
                }
                inside.put_u32(done, read)
            })
        },
    )?;
    linker.func_wrap(MODULE, "fd_close", |fd: i32| -> i32 { stream(fd, SUCCESS) })?;
    linker.func_wrap(MODULE, "fd_fdstat_set_flags", |fd: i32, _flags: i32| -> i32 { stream(fd, NOTCAPABLE) })?;
    linker.func_wrap(MODULE, "fd_seek", |fd: i32, _by: i64, _from: i32, _at: i32| -> i32 { stream(fd, SPIPE) })?;
    linker.func_wrap(MODULE, "fd_prestat_get", |_fd: i32, _at: i32| -> i32 { BADF })?;
    linker.func_wrap(MODULE, "fd_prestat_dir_name", |_fd: i32, _at: i32, _length: i32| -> i32 { BADF })?;
    linker.func_wrap(MODULE, "fd_fdstat_get", |mut caller: Caller<'_, StoreData>, fd: i32, at: u32| -> i32 {
        // With the right to read (2) or to write (64). Of no kind: a character device would be taken for a terminal, which it is not.
        let right: u64 = if fd == 0 { 2 } else { 64 };
        let mut stat = [0; 24];
        for (to, from) in stat.iter_mut().skip(8).zip(right.to_le_bytes()) {
            *to = from;
        }
        if stream(fd, SUCCESS) == SUCCESS { answer(&mut caller, |inside| inside.put(at, &stat)) } else { BADF }
    })?;
    Ok(())
}

const fn stream(fd: i32, answer: i32) -> i32 {
    if matches!(fd, 0..=2) { answer } else { BADF }
}

/// Clocks, random bytes, and the end.
fn circumstances(linker: &mut Linker<StoreData>) -> Result<(), Error> {
    linker.func_wrap(
        MODULE,
        "clock_time_get",
        |mut caller: Caller<'_, StoreData>, id: i32, _precision: i64, at: u32| -> i32 {
            use rustix::time::ClockId;
            // By their numbers.
            const CLOCKS: [ClockId; 4] =
                [ClockId::Realtime, ClockId::Monotonic, ClockId::ProcessCPUTime, ClockId::ThreadCPUTime];
            let Some(which) = usize::try_from(id).ok().and_then(|id| CLOCKS.get(id)) else { return INVAL };
            let now = rustix::time::clock_gettime(*which);
            let nanos = now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec);
            answer(&mut caller, |inside| inside.put(at, &nanos.to_le_bytes()))
        },
    )?;
    linker.func_wrap(MODULE, "clock_res_get", |mut caller: Caller<'_, StoreData>, _id: i32, at: u32| -> i32 {
        answer(&mut caller, |inside| inside.put(at, &1_u64.to_le_bytes()))
    })?;
    linker.func_wrap(MODULE, "random_get", |mut caller: Caller<'_, StoreData>, at: u32, length: u32| -> i32 {
        answer(&mut caller, |inside| {
            let length = usize::try_from(length).map_err(|_| FAULT)?;
            let mut left = inside.bytes(at, length)?;
            while !left.is_empty() {
                let count =
                    rustix::rand::getrandom(&mut *left, rustix::rand::GetRandomFlags::empty()).map_err(|_| IO)?;
                left = left.get_mut(count..).unwrap_or_default();
            }
            Ok(())
        })
    })?;
    linker.func_wrap(MODULE, "sched_yield", || -> i32 { SUCCESS })?;
    linker.func_wrap(MODULE, "proc_exit", |code: i32| -> Result<(), Error> { Err(Error::i32_exit(code)) })?;
    Ok(())
}
