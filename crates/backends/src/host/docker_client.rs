//! Which daemon Docker's own client would ask for a caller: what a variable says, or the context that is current, or the usual one.
//!
//! The order is the client's. What cannot be read is told, and never taken for the usual one.

use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use policy::json::sha256_hex;
use serde_json::Value;

/// The context that says nothing.
const DEFAULT: &str = "default";
/// Largest file of settings that is read, bytes.
const MAX_SETTINGS: u64 = 4 << 20;

/// What the caller's environment says to Docker's client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DockerClient {
    /// `DOCKER_HOST`.
    pub host: Option<String>,
    /// `DOCKER_CONTEXT`.
    pub context: Option<String>,
    /// The folder of its settings: `DOCKER_CONFIG`, else `~/.docker`.
    pub folder: Option<PathBuf>,
}

/// A daemon that is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    /// Its address, as it is written.
    pub(super) host: String,
    /// What names it, in words.
    pub(super) by: String,
    /// What makes it unnamed, in words.
    pub(super) unset: &'static str,
}

impl DockerClient {
    /// The daemon that is named, or none: the usual one.
    ///
    /// # Errors
    /// In words: what the client reads cannot be read, or says nothing that could be followed.
    pub(super) fn named(&self) -> Result<Option<Named>, String> {
        if let Some(host) = said(self.host.as_ref()) {
            return Ok(Some(Named { host, by: "DOCKER_HOST".to_owned(), unset: "unset DOCKER_HOST" }));
        }
        let Some((context, by)) = self.current()? else { return Ok(None) };
        if context == DEFAULT {
            return Ok(None);
        }
        let by = format!("the context `{}` of Docker's client ({by})", shown(&context));
        let folder = self.folder.as_deref().ok_or_else(|| format!("{by} is nowhere: there is no home folder"))?;
        let place = folder.join("contexts").join("meta").join(sha256_hex(context.as_bytes())).join("meta.json");
        let about = settings(&place)?.ok_or_else(|| format!("{by} is not there: {}", place.display()))?;
        let endpoint = field(&about, "Endpoints").and_then(|all| field(all, "docker"));
        let host = endpoint.and_then(|docker| field(docker, "Host")).and_then(Value::as_str);
        let host = host.filter(|host| !host.is_empty()).ok_or_else(|| format!("{by} names no daemon"))?;
        let unset = "`docker context use default` and no DOCKER_CONTEXT";
        Ok(Some(Named { host: host.to_owned(), by, unset }))
    }

    /// The name of the current context, and what says it.
    fn current(&self) -> Result<Option<(String, String)>, String> {
        if let Some(context) = said(self.context.as_ref()) {
            return Ok(Some((context, "DOCKER_CONTEXT".to_owned())));
        }
        let Some(folder) = &self.folder else { return Ok(None) };
        let place = folder.join("config.json");
        let Some(config) = settings(&place)? else { return Ok(None) };
        match field(&config, "currentContext") {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(name)) if name.is_empty() => Ok(None),
            Some(Value::String(name)) => Ok(Some((name.clone(), place.display().to_string()))),
            Some(_) => Err(format!("`currentContext` of {} is no name", place.display())),
        }
    }
}

/// As much of a word as is told.
pub(super) fn shown(word: &str) -> String {
    const MAX_TOLD: usize = 100;
    word.chars().filter(|c| !c.is_control()).take(MAX_TOLD).collect()
}

/// An empty variable says nothing.
fn said(variable: Option<&String>) -> Option<String> {
    variable.filter(|value| !value.is_empty()).cloned()
}

/// A field of a document, in the spelling that the client takes: any case of its letters.
fn field<'a>(document: &'a Value, name: &str) -> Option<&'a Value> {
    let fields = document.as_object()?;
    fields.get(name).or_else(|| Some(fields.iter().find(|(key, _)| key.eq_ignore_ascii_case(name))?.1))
}

/// A file of the client's settings, if it is there.
fn settings(place: &Path) -> Result<Option<Value>, String> {
    let told = |why: &dyn std::fmt::Display| format!("{} cannot be read: {why}", place.display());
    let file = match std::fs::File::open(place) {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        Err(error) => return Err(told(&error)),
    };
    if !file.metadata().is_ok_and(|meta| meta.is_file()) {
        return Err(told(&"it is no file"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_SETTINGS + 1).read_to_end(&mut bytes).map_err(|error| told(&error))?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > MAX_SETTINGS) {
        return Err(told(&"it is too long"));
    }
    serde_json::from_slice(&bytes).map(Some).map_err(|error| told(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Settings(tempfile::TempDir);

    impl Settings {
        fn new(config: &str) -> Self {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("config.json"), config).unwrap();
            Self(folder)
        }

        fn context(&self, name: &str, about: &str) {
            let folder = self.0.path().join("contexts/meta").join(sha256_hex(name.as_bytes()));
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("meta.json"), about).unwrap();
        }

        /// The address and what names it, with these variables.
        fn named(&self, host: &str, context: &str) -> Result<Option<(String, String)>, String> {
            let (host, context) = (Some(host.to_owned()), Some(context.to_owned()));
            let client = DockerClient { host, context, folder: Some(self.0.path().to_owned()) };
            client.named().map(|named| named.map(|named| (named.host, named.by)))
        }
    }

    const REMOTE: &str =
        r#"{"Name":"far","Metadata":{},"Endpoints":{"docker":{"Host":"ssh://far","SkipTLSVerify":false}}}"#;
    const OWN: &str = r#"{"Name":"own","Endpoints":{"docker":{"Host":"unix:///var/run/docker.sock"}}}"#;

    #[test]
    fn a_variable_goes_before_a_context_and_the_named_context_before_the_current_one() {
        let settings = Settings::new(r#"{"auths":{},"currentContext":"far"}"#);
        settings.context("far", REMOTE);
        settings.context("own", OWN);
        let host = |host, context| settings.named(host, context).unwrap().map(|(host, _)| host);
        assert_eq!(host("", "").as_deref(), Some("ssh://far"));
        assert_eq!(host("", "own").as_deref(), Some("unix:///var/run/docker.sock"));
        assert_eq!(host("tcp://a:2375", "own").as_deref(), Some("tcp://a:2375"));
        assert_eq!(host("", "default"), None, "whatever is current");
        let (_, by) = settings.named("", "").unwrap().unwrap();
        assert!(by.contains("`far`") && by.contains("config.json"), "{by}");
        assert!(settings.named("", "own").unwrap().unwrap().1.contains("DOCKER_CONTEXT"));
    }

    #[test]
    fn without_settings_or_a_current_context_it_is_the_usual_daemon() {
        for config in
            ["{}", r#"{"currentContext":""}"#, r#"{"currentContext":"default"}"#, r#"{"currentContext":null}"#]
        {
            assert_eq!(Settings::new(config).named("", ""), Ok(None), "{config}");
        }
        let nothing = DockerClient { folder: Some(PathBuf::from("/nonexistent")), ..DockerClient::default() };
        assert_eq!((nothing.named(), DockerClient::default().named()), (Ok(None), Ok(None)));
    }

    #[test]
    fn what_cannot_be_followed_is_told_and_is_not_the_usual_daemon() {
        for (config, word) in [
            ("{", "cannot be read"),
            (r#"{"currentContext":7}"#, "is no name"),
            (r#"{"currentContext":"gone"}"#, "is not there"),
            (r#"{"CURRENTCONTEXT":"gone"}"#, "is not there"),
            (r#"{"currentContext":"bare"}"#, "names no daemon"),
            (r#"{"currentContext":"broken"}"#, "cannot be read"),
        ] {
            let settings = Settings::new(config);
            settings.context("bare", r#"{"Name":"bare","Endpoints":{}}"#);
            settings.context("broken", "{");
            let told = settings.named("", "").unwrap_err();
            assert!(told.contains(word), "{config}: {told}");
        }
        let nowhere = DockerClient { context: Some("x".to_owned()), ..DockerClient::default() };
        assert!(nowhere.named().unwrap_err().contains("no home folder"));
    }
}
