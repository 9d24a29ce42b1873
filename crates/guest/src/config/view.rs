//! The guest's side: borrows the bytes, checks all of them once, allocates nothing.

use core::ffi::CStr;

use super::list::{Item, List};
use super::{
    Ids, Inlet, LandlockView, MAGIC, MAX_EXPORTS, MAX_INLETS, MAX_PROBES, MAX_SOURCES, Mode, Op, Probe, Rlimit, Size,
    Source, VERSION,
};
use crate::wire::Reader;

/// The bytes are no config of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// How many bytes were understood.
    pub at: usize,
}

/// A config that was checked as a whole; the fields are those of the builder.
#[expect(missing_docs, reason = "each field is documented once, in the builder")]
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    pub mode: Mode,
    pub wait_mapped: bool,
    pub new_cgroup: bool,
    pub wait_filled: bool,
    pub loopback: bool,
    pub local_ipv4: bool,
    pub local_ipv6: bool,
    pub link: bool,
    pub inner_limits: bool,
    pub new_keyring: bool,
    pub new_session: bool,
    pub close_descriptors: bool,
    pub drop_capabilities: bool,
    pub no_new_privs: bool,
    pub undumpable: bool,
    pub prove_payload_scope: bool,
    pub stay: bool,
    pub clear_groups: bool,
    pub ignored: u64,
    pub ids: Option<Ids>,
    pub umask: u32,
    pub oom_score_adj: Option<i32>,
    pub nice: Option<i32>,
    pub tty: Option<Size>,
    pub hostname: &'a [u8],
    pub label_file: &'a CStr,
    pub label: &'a [u8],
    pub sources: List<'a, Source<&'a CStr>>,
    pub ops: List<'a, Op<&'a CStr, &'a [u8]>>,
    pub inlets: List<'a, Inlet>,
    pub rlimits: List<'a, Rlimit>,
    pub landlock: Option<LandlockView<'a>>,
    pub payload_layer: Option<LandlockView<'a>>,
    pub asking: &'a [u8],
    pub proof: &'a CStr,
    pub seccomp: &'a [u8],
    pub probes: List<'a, Probe<&'a CStr>>,
    pub argv: List<'a, &'a CStr>,
    pub env: List<'a, &'a CStr>,
    pub cwd: &'a CStr,
    pub search: List<'a, &'a CStr>,
    pub program: Option<u32>,
}

impl<'a> View<'a> {
    /// Checks everything and borrows it.
    ///
    /// # Errors
    /// [`Malformed`] for any byte that is not as the builder would have written it.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let view = Self::read(&mut reader).filter(|view| reader.remaining() == 0 && view.within_bounds());
        view.ok_or(Malformed { at: bytes.len().saturating_sub(reader.remaining()) })
    }

    fn read(r: &mut Reader<'a>) -> Option<Self> {
        if r.array()? != MAGIC || r.u32()? != VERSION {
            return None;
        }
        Some(Self {
            mode: match r.u8()? {
                0 => Mode::Container,
                1 => Mode::Process,
                2 => Mode::Bundle,
                3 => Mode::Runtime,
                4.. => return None,
            },
            wait_mapped: r.flag()?,
            new_cgroup: r.flag()?,
            wait_filled: r.flag()?,
            loopback: r.flag()?,
            local_ipv4: r.flag()?,
            local_ipv6: r.flag()?,
            link: r.flag()?,
            inner_limits: r.flag()?,
            new_keyring: r.flag()?,
            new_session: r.flag()?,
            close_descriptors: r.flag()?,
            drop_capabilities: r.flag()?,
            no_new_privs: r.flag()?,
            undumpable: r.flag()?,
            prove_payload_scope: r.flag()?,
            stay: r.flag()?,
            clear_groups: r.flag()?,
            ignored: r.u64()?,
            ids: r.option(|r| Some(Ids { uid: r.u32()?, gid: r.u32()? }))?,
            umask: r.u32()?,
            oom_score_adj: r.option(Reader::i32)?,
            nice: r.option(Reader::i32)?,
            tty: r.option(|r| Some(Size { rows: r.u16()?, cols: r.u16()? }))?,
            hostname: r.bytes()?,
            label_file: r.text()?,
            label: r.bytes()?,
            sources: List::read(r)?,
            ops: List::read(r)?,
            inlets: List::read(r)?,
            rlimits: List::read(r)?,
            landlock: r.option(LandlockView::read)?,
            payload_layer: r.option(LandlockView::read)?,
            asking: r.bytes()?,
            proof: r.text()?,
            seccomp: r.bytes()?,
            probes: List::read(r)?,
            argv: List::read(r)?,
            env: List::read(r)?,
            cwd: r.text()?,
            search: List::read(r)?,
            program: r.option(Reader::u32)?,
        })
    }

    /// The guest has fixed tables; what they cannot hold is refused here and not cut later.
    fn within_bounds(&self) -> bool {
        let exports = self.ops.iter().filter(|op| match op {
            Op::Overlay { export, .. } | Op::Tmpfs { export, .. } => export.is_some(),
            Op::Fill { .. } => true,
            Op::Root { .. }
            | Op::Dir { .. }
            | Op::File { .. }
            | Op::Symlink { .. }
            | Op::Bind { .. }
            | Op::BindInner { .. }
            | Op::Device { .. }
            | Op::Devpts { .. }
            | Op::Proc { .. }
            | Op::Mqueue { .. }
            | Op::Mask { .. }
            | Op::ReadOnly { .. }
            | Op::Pin { .. }
            | Op::SetAttr { .. } => false,
        });
        self.sources.len() <= MAX_SOURCES
            && self.probes.len() <= MAX_PROBES
            && self.inlets.len() <= MAX_INLETS
            && exports.count() <= MAX_EXPORTS
            && self.hostname.len() <= 64
            && self.label.is_empty() == self.label_file.is_empty()
    }
}
