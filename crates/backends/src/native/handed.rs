//! What the native backend prepared, in the hands of another one that starts it.

use std::fmt::Debug;
use std::path::{Path, PathBuf};

use super::prepare::Prepared;
use crate::host::Capabilities;
use crate::{StartError, backend};

/// What another backend prepares around it.
pub(crate) trait Handed: Debug {
    /// What is native.
    fn inner(&self) -> &Prepared;

    /// As [`backend::Prepared::start`].
    fn start(self, host: &Capabilities) -> Result<Box<dyn backend::Started>, StartError>;
}

impl<T: Handed> backend::Prepared for T {
    fn workspace(&self) -> Option<&Path> {
        self.inner().workspace()
    }

    fn maps(&self, path: &Path) -> bool {
        self.inner().maps(path)
    }

    fn copy_to(&self) -> Option<&Path> {
        self.inner().copy_to()
    }

    fn owner(&self) -> (u32, u32) {
        self.inner().owner()
    }

    fn groups(&self, host: &Capabilities) -> Vec<PathBuf> {
        self.inner().groups(host)
    }

    fn start(self: Box<Self>, host: &Capabilities) -> Result<Box<dyn backend::Started>, StartError> {
        Handed::start(*self, host)
    }
}
