//! The operations that build the new root, in order. Paths are absolute, inside, without symlinks.

use core::ffi::CStr;

use super::list::Item;
use crate::wire::Reader;

/// Attributes of a mount (`MOUNT_ATTR_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attrs(u64);

impl Attrs {
    /// Nothing special.
    pub const NONE: Self = Self(0);
    /// Read-only.
    pub const RDONLY: Self = Self(1);
    /// Set-id bits mean nothing.
    pub const NOSUID: Self = Self(2);
    /// Device nodes mean nothing.
    pub const NODEV: Self = Self(4);
    /// Nothing can be executed.
    pub const NOEXEC: Self = Self(8);
    /// Symlinks are not followed.
    pub const NOSYMFOLLOW: Self = Self(0x0020_0000);

    const ALL: u64 = 1 | 2 | 4 | 8 | 0x0020_0000;

    /// The kernel's bits.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let bits = reader.u64()?;
        (bits & !Self::ALL == 0).then_some(Self(bits))
    }
}

impl core::ops::BitOr for Attrs {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        self.and(other)
    }
}

/// Most lower layers of one overlay.
pub const MAX_LOWERS: usize = 4;

/// Indices of the sources that lie under an overlay, the topmost first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lowers {
    indices: [u32; MAX_LOWERS],
    count: u8,
}

impl Lowers {
    /// One source.
    #[must_use]
    pub const fn one(index: u32) -> Self {
        Self { indices: [index, 0, 0, 0], count: 1 }
    }

    /// Up to [`MAX_LOWERS`] sources, the topmost first.
    #[must_use]
    pub fn new(indices: &[u32]) -> Option<Self> {
        let count = u8::try_from(indices.len()).ok()?;
        let mut all = Self { indices: [0; MAX_LOWERS], count };
        for (at, index) in indices.iter().enumerate() {
            *all.indices.get_mut(at)? = *index;
        }
        (count > 0).then_some(all)
    }

    /// The sources.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.indices.iter().take(usize::from(self.count)).copied()
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let mut indices = [0; MAX_LOWERS];
        let count = usize::from(reader.u8()?);
        for index in indices.get_mut(..count)? {
            *index = reader.u32()?;
        }
        Self::new(indices.get(..count)?)
    }
}

/// One operation. Parents that are missing are made with mode 0755.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op<P, B> {
    /// The new root: a tmpfs. Must come first, and only once.
    Root {
        /// Bytes.
        size: u64,
        /// Inodes.
        inodes: u64,
    },
    /// A directory; it may exist.
    Dir {
        /// Where.
        path: P,
        /// Permissions.
        mode: u32,
    },
    /// A new file with this content.
    File {
        /// Where.
        path: P,
        /// Permissions.
        mode: u32,
        /// Content.
        bytes: B,
    },
    /// A new symlink.
    Symlink {
        /// Where.
        path: P,
        /// What it says.
        target: P,
    },
    /// A tmpfs.
    Tmpfs {
        /// Where.
        path: P,
        /// Bytes.
        size: u64,
        /// Inodes.
        inodes: u64,
        /// Permissions of its root.
        mode: u32,
        /// Attributes.
        attrs: Attrs,
        /// Pass a descriptor of its root out under this number.
        export: Option<u32>,
    },
    /// A source, with all that is mounted below it.
    Bind {
        /// Index of the source; each is used once.
        source: u32,
        /// Where.
        path: P,
        /// Attributes, for all of it.
        attrs: Attrs,
        /// The source is not a directory.
        file: bool,
    },
    /// A file of the new root, at another place as well.
    BindInner {
        /// Which file.
        from: P,
        /// Where.
        path: P,
        /// Attributes there.
        attrs: Attrs,
    },
    /// An overlay; its upper layer lies on a tmpfs of its own that nothing else reaches. `size = 0`: no upper layer,
    /// read-only, which also keeps unix sockets of the host out of reach.
    Overlay {
        /// Lower layers.
        lowers: Lowers,
        /// Where.
        path: P,
        /// Bytes of the upper layer.
        size: u64,
        /// Inodes of the upper layer.
        inodes: u64,
        /// Attributes.
        attrs: Attrs,
        /// Pass a descriptor of the upper layer out under this number.
        export: Option<u32>,
    },
    /// A tmpfs that the supervisor fills before the attributes are set.
    Fill {
        /// Where.
        path: P,
        /// Bytes.
        size: u64,
        /// Inodes.
        inodes: u64,
        /// Attributes, once it is filled.
        attrs: Attrs,
        /// Its root is passed out under this number.
        slot: u32,
    },
    /// A device of the host, at the same path inside. What is there afterwards must be a character device of this number.
    Device {
        /// Where, outside and inside.
        path: P,
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
    },
    /// Pseudo terminals of our own, and `ptmx` beside the directory.
    Devpts {
        /// Where.
        path: P,
        /// Most terminals.
        max: u32,
    },
    /// A procfs of our pid namespace.
    Proc {
        /// Where.
        path: P,
    },
    /// POSIX message queues.
    Mqueue {
        /// Where.
        path: P,
    },
    /// Hide what is there: an empty directory, or `/dev/null` (which must have been made). Missing = nothing to do.
    Mask {
        /// What.
        path: P,
        /// It is expected to be a directory; if it is none, it is hidden as the file that it is.
        dir: bool,
    },
    /// Make what is there read-only.
    ReadOnly {
        /// What.
        path: P,
        /// And what is mounted below.
        recursive: bool,
    },
    /// Bind it on itself, so that it cannot be renamed or removed.
    Pin {
        /// What.
        path: P,
    },
    /// Set attributes of the mount at this path.
    SetAttr {
        /// A mount point.
        path: P,
        /// Attributes to set.
        attrs: Attrs,
        /// And of what is mounted below.
        recursive: bool,
    },
}

impl<'a> Item<'a> for Op<&'a CStr, &'a [u8]> {
    fn read(r: &mut Reader<'a>) -> Option<Self> {
        Some(match r.u8()? {
            0 => Self::Root { size: r.u64()?, inodes: r.u64()? },
            1 => Self::Dir { path: r.text()?, mode: r.u32()? },
            2 => Self::File { path: r.text()?, mode: r.u32()?, bytes: r.bytes()? },
            3 => Self::Symlink { path: r.text()?, target: r.text()? },
            4 => Self::Tmpfs {
                path: r.text()?,
                size: r.u64()?,
                inodes: r.u64()?,
                mode: r.u32()?,
                attrs: Attrs::read(r)?,
                export: r.option(Reader::u32)?,
            },
            5 => Self::Bind { source: r.u32()?, path: r.text()?, attrs: Attrs::read(r)?, file: r.flag()? },
            6 => Self::Overlay {
                lowers: Lowers::read(r)?,
                path: r.text()?,
                size: r.u64()?,
                inodes: r.u64()?,
                attrs: Attrs::read(r)?,
                export: r.option(Reader::u32)?,
            },
            7 => {
                Self::Fill { path: r.text()?, size: r.u64()?, inodes: r.u64()?, attrs: Attrs::read(r)?, slot: r.u32()? }
            }
            8 => Self::Devpts { path: r.text()?, max: r.u32()? },
            9 => Self::Proc { path: r.text()? },
            10 => Self::Mqueue { path: r.text()? },
            11 => Self::Mask { path: r.text()?, dir: r.flag()? },
            12 => Self::ReadOnly { path: r.text()?, recursive: r.flag()? },
            13 => Self::Pin { path: r.text()? },
            14 => Self::SetAttr { path: r.text()?, attrs: Attrs::read(r)?, recursive: r.flag()? },
            15 => Self::Device { path: r.text()?, major: r.u32()?, minor: r.u32()? },
            16 => Self::BindInner { from: r.text()?, path: r.text()?, attrs: Attrs::read(r)? },
            17.. => return None,
        })
    }
}

#[cfg(feature = "std")]
mod put {
    use super::{Attrs, CStr, Lowers, Op};
    use crate::config::builder::{Put, fields};

    impl Put for Attrs {
        fn put(&self, out: &mut Vec<u8>) {
            self.0.put(out);
        }
    }

    impl Put for Lowers {
        fn put(&self, out: &mut Vec<u8>) {
            self.count.put(out);
            self.iter().for_each(|index| index.put(out));
        }
    }

    impl<P: AsRef<CStr>, B: AsRef<[u8]>> Put for Op<P, B> {
        fn put(&self, out: &mut Vec<u8>) {
            match self {
                Self::Root { size, inodes } => fields(out, 0, &[size, inodes]),
                Self::Dir { path, mode } => fields(out, 1, &[&path.as_ref(), mode]),
                Self::File { path, mode, bytes } => fields(out, 2, &[&path.as_ref(), mode, &bytes.as_ref()]),
                Self::Symlink { path, target } => fields(out, 3, &[&path.as_ref(), &target.as_ref()]),
                Self::Tmpfs { path, size, inodes, mode, attrs, export } => {
                    fields(out, 4, &[&path.as_ref(), size, inodes, mode, attrs, export]);
                }
                Self::Bind { source, path, attrs, file } => fields(out, 5, &[source, &path.as_ref(), attrs, file]),
                Self::Overlay { lowers, path, size, inodes, attrs, export } => {
                    fields(out, 6, &[lowers, &path.as_ref(), size, inodes, attrs, export]);
                }
                Self::Fill { path, size, inodes, attrs, slot } => {
                    fields(out, 7, &[&path.as_ref(), size, inodes, attrs, slot]);
                }
                Self::Devpts { path, max } => fields(out, 8, &[&path.as_ref(), max]),
                Self::Proc { path } => fields(out, 9, &[&path.as_ref()]),
                Self::Mqueue { path } => fields(out, 10, &[&path.as_ref()]),
                Self::Mask { path, dir } => fields(out, 11, &[&path.as_ref(), dir]),
                Self::ReadOnly { path, recursive } => fields(out, 12, &[&path.as_ref(), recursive]),
                Self::Pin { path } => fields(out, 13, &[&path.as_ref()]),
                Self::SetAttr { path, attrs, recursive } => fields(out, 14, &[&path.as_ref(), attrs, recursive]),
                Self::Device { path, major, minor } => fields(out, 15, &[&path.as_ref(), major, minor]),
                Self::BindInner { from, path, attrs } => fields(out, 16, &[&from.as_ref(), &path.as_ref(), attrs]),
            }
        }
    }
}
