//! Profiles: which server to call, and as whom.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use proctor_client::{Client, Credentials};
use serde::{Deserialize, Serialize};

use crate::args::Connection;

/// A TOML file. Unknown fields, as of newer versions, are ignored.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Profile {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) server: Option<String>,
    /// Of the server's key; with https only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) server_fingerprint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) app_code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) app_secret: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<String>,
    /// Instead of an app.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user_token: Option<String>,
}

impl Profile {
    /// None if there is no such file.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("cannot read profile {}", path.display())),
        };
        // The parser's error quotes the line, which may contain the secret.
        let profile = toml::from_str(&text).map_err(|error| {
            let line = error.span().map_or(0, |span| text[..span.start].lines().count().max(1));
            anyhow::anyhow!("profile {} is not well formed: line {line}: {}", path.display(), error.message())
        })?;
        Ok(Some(profile))
    }

    /// Replaces the file as a whole; only its owner can read it.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let text = toml::to_string(self).context("cannot write a profile as TOML")?;
        proctor_runtime::private::write(path, &text).with_context(|| format!("cannot write profile {}", path.display()))
    }

    /// The command line and the environment override the file.
    fn overlaid(self, connection: &Connection) -> Self {
        // An app that was given is used, even if the file names a user token.
        let in_file = self.user_token.filter(|_| connection.app_code.is_none());
        Self {
            server: connection.server.clone().or(self.server),
            server_fingerprint: connection.server_fingerprint.clone().or(self.server_fingerprint),
            app_code: connection.app_code.clone().or(self.app_code),
            app_secret: connection.app_secret.clone().or(self.app_secret),
            user: connection.user.clone().or(self.user),
            user_token: connection.user_token.clone().or(in_file),
        }
    }
}

/// The client for interactive commands.
pub(crate) fn connect(connection: &Connection) -> Result<Client> {
    let (path, profile) = match &connection.profile {
        Some(path) => match Profile::read(path)? {
            Some(profile) => (Some(path.clone()), profile),
            None => bail!("there is no profile {}", path.display()),
        },
        None => {
            let path = default_path();
            let profile = path.as_deref().map(Profile::read).transpose()?.flatten();
            (path, profile.unwrap_or_default())
        }
    };
    let profile = profile.overlaid(connection);
    let file = path.map_or_else(|| "a profile".to_owned(), |path| path.display().to_string());
    let missing = |what: &str, flag: &str, variable: &str, field: &str| {
        format!("{what} is not set: give {flag}, set {variable}, or write {field} into {file}")
    };
    let server = profile.server.with_context(|| missing("the server", "--server", "PROCTOR_SERVER", "server"))?;
    if let Some(token) = profile.user_token {
        return open(&server, profile.server_fingerprint.as_deref(), Credentials::user_token(token));
    }
    let code = profile.app_code.with_context(|| missing("the app", "--app-code", "PROCTOR_APP_CODE", "app_code"))?;
    let secret = profile
        .app_secret
        .with_context(|| missing("the app's secret", "--app-secret", "PROCTOR_APP_SECRET", "app_secret"))?;
    let user = profile.user.or_else(current_user).unwrap_or_else(|| "admin".to_owned());
    open(&server, profile.server_fingerprint.as_deref(), Credentials::new(code, secret, user))
}

fn open(server: &str, fingerprint: Option<&str>, credentials: Credentials) -> Result<Client> {
    match fingerprint {
        None => Ok(Client::new(server, credentials)?),
        Some(fingerprint) => Ok(Client::pinned(server, fingerprint, credentials)?),
    }
}

fn default_path() -> Option<PathBuf> {
    base_dir("XDG_CONFIG_HOME", ".config").map(|dir| dir.join("proctor/profile.toml"))
}

/// An XDG directory: its variable if that is an absolute path, otherwise below HOME.
pub(crate) fn base_dir(variable: &str, below_home: &str) -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute(variable).or_else(|| absolute("HOME").map(|home| home.join(below_home)))
}

/// The account that runs this program.
pub(crate) fn current_user() -> Option<String> {
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).ok().flatten()?;
    Some(user.name)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("profile.toml");
        fs::write(&path, text).unwrap();
        (dir, path)
    }

    #[test]
    fn a_profile_survives_its_file_which_is_private() {
        let (_dir, path) = file("");
        let profile = Profile {
            server: Some("http://h".into()),
            server_fingerprint: None,
            app_code: Some("a".into()),
            app_secret: Some("\"'\\\n".into()),
            user: None,
            user_token: None,
        };

        profile.write(&path).unwrap();

        assert!(Profile::read(&path).unwrap() == Some(profile));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_broken_profile_is_named_without_its_secret() {
        let (_dir, path) = file("server = \"http://h\"\napp_secret = \"hush\" oops\n");

        let error = format!("{:#}", Profile::read(&path).err().unwrap());

        assert!(error.contains("profile.toml") && error.contains("line 2"), "{error}");
        assert!(!error.contains("hush"), "{error}");
    }

    #[test]
    fn no_file_is_no_profile() {
        assert!(Profile::read(Path::new("/nonexistent/profile.toml")).unwrap().is_none());
    }

    #[test]
    fn flags_go_before_the_file() {
        let (_dir, path) = file("server = \"http://h:1\"\napp_code = \"a\"\napp_secret = \"b\"\nnewer = 1\n");
        let connection = Connection { profile: Some(path), server: Some("http://h:2".into()), ..Connection::default() };

        assert_eq!(connect(&connection).unwrap().server(), "http://h:2");
    }

    #[test]
    fn a_user_token_needs_no_app_and_an_app_that_is_given_goes_before_that_of_the_file() {
        let (_dir, path) = file("server = \"http://h:1\"\nuser_token = \"hush\"\n");
        let with = |app_code: Option<&str>| Connection {
            profile: Some(path.clone()),
            app_code: app_code.map(Into::into),
            ..Connection::default()
        };

        assert!(connect(&with(None)).is_ok());
        assert!(format!("{:#}", connect(&with(Some("a"))).unwrap_err()).contains("--app-secret"));
    }

    #[test]
    fn what_is_missing_is_named_with_its_three_sources() {
        let (_dir, path) = file("server = \"http://h:1\"\n");

        let error = connect(&Connection { profile: Some(path.clone()), ..Connection::default() }).unwrap_err();

        let shown = format!("{error:#}");
        assert!(["--app-code", "PROCTOR_APP_CODE", &path.display().to_string()].iter().all(|p| shown.contains(p)));
    }
}
