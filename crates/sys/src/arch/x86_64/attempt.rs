//! Calls that this architecture has and others lack, beside those of `bare::attempt`.

use linux_raw_sys::general as nr;

/// Calls that fail, or only tell something, when all their arguments are zero.
pub(crate) const BY_NOTHING: &[u32] = &[
    nr::__NR_access,
    nr::__NR_arch_prctl,
    nr::__NR_chmod,
    nr::__NR_chown,
    nr::__NR_creat,
    nr::__NR_epoll_create,
    nr::__NR_getpgrp,
    nr::__NR_lchown,
    nr::__NR_link,
    nr::__NR_lstat,
    nr::__NR_mkdir,
    nr::__NR_mknod,
    nr::__NR_open,
    nr::__NR_pipe,
    nr::__NR_poll,
    nr::__NR_readlink,
    nr::__NR_rename,
    nr::__NR_rmdir,
    nr::__NR_stat,
    nr::__NR_symlink,
    nr::__NR_time,
    nr::__NR_unlink,
    nr::__NR_utime,
    nr::__NR_utimes,
];
