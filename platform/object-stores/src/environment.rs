//! The user's settings for the tools of a provider: variables, and the locations of files.

use std::{env, fs, io, path::PathBuf};

use crate::{
    address::Identity,
    options::Options,
    profile::{self, Keys, Profile, ProfileError},
};

/// The origin of the settings of buckets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    /// The environment variables of providers.
    pub variables: Options,
    /// The user's home directory, which contains `.aws`.
    pub home: Option<PathBuf>,
}

impl Environment {
    /// The environment of this process.
    pub fn of_process() -> Self {
        let prefixes = ["AWS_", "GOOGLE_", "AZURE_"];
        let variables = env::vars_os().filter_map(|(name, value)| {
            let name = name.into_string().ok()?;
            let is_of_bucket = prefixes.iter().any(|prefix| name.starts_with(prefix));
            is_of_bucket.then(|| Some((name, value.into_string().ok()?)))?
        });
        let home = env::var_os("HOME").filter(|home| !home.is_empty());
        Self { variables: Options(variables.collect()), home: home.map(PathBuf::from) }
    }

    /// The variables, completed for AWS by the profile that they name; without its keys for
    /// anonymous requests.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, the named profile is not in them, or neither the files nor the
    /// variables contain its credentials.
    pub fn options(&self, identity: Identity) -> Result<Options, ProfileError> {
        Ok(self.with_keys(identity)?.0)
    }

    /// As [`Self::options`], and the keys that are of the profile.
    pub(crate) fn with_keys(
        &self,
        identity: Identity,
    ) -> Result<(Options, Option<Keys>), ProfileError> {
        let profile = self.profile()?;
        let options = profile::complete(&self.variables, &profile);
        if identity == Identity::Anonymous {
            return Ok((options, None));
        }
        let keys = profile::keys(&self.variables, &profile)?;
        let more = keys.as_ref().map(Keys::options).unwrap_or_default();
        Ok((options.with(more), keys))
    }

    /// The keys of the profile as they are now; `None` if variables name the identity, or the profile has none.
    pub(crate) fn profile_keys(&self) -> Result<Option<Keys>, ProfileError> {
        profile::keys(&self.variables, &self.profile()?)
    }

    fn profile(&self) -> Result<Profile, ProfileError> {
        let credentials = self.file("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials")?;
        let config = self.file("AWS_CONFIG_FILE", ".aws/config")?;
        Profile::read(&self.variables, &credentials, &config)
    }

    /// Reads a file; a missing one is empty.
    fn file(&self, variable: &str, usual: &str) -> Result<String, ProfileError> {
        let named = self.variables.0.get(variable).map(PathBuf::from);
        let usual = || self.home.as_ref().map(|home| home.join(usual));
        let Some(path) = named.or_else(usual) else { return Ok(String::new()) };
        match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            read => read.map_err(|source| ProfileError::Unreadable { path, source }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Options {
        Options(pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect())
    }

    #[test]
    fn files_are_those_in_the_home_unless_variables_name_others() {
        let home = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = home.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        write(".aws/config", "[default]\nregion = usual\n");
        let other = write("other", "[default]\nregion = other\n");
        let region = |pairs: &[(&str, &str)]| {
            let home = Some(home.path().to_owned());
            let options = Environment { variables: variables(pairs), home }
                .options(Identity::Configured)
                .unwrap();
            options.0["AWS_REGION"].clone()
        };
        assert_eq!(region(&[]), "usual");
        assert_eq!(region(&[("AWS_CONFIG_FILE", &other)]), "other");
        assert_eq!(region(&[("AWS_REGION", "mine"), ("AWS_CONFIG_FILE", &other)]), "mine");
        let anonymous = Environment { variables: variables(&[("AWS_REGION", "x")]), home: None };
        assert_eq!(anonymous.options(Identity::Configured).unwrap(), anonymous.variables);
        let unreadable = variables(&[("AWS_CONFIG_FILE", home.path().to_str().unwrap())]);
        let error = Environment { variables: unreadable, home: None }
            .options(Identity::Configured)
            .unwrap_err();
        assert!(matches!(error, ProfileError::Unreadable { .. }), "{error}");
    }
}
