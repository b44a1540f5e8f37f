//! Reads the AWS profile of a user: keys, region and endpoint.
//!
//! # Source
//!
//! The AWS SDKs and Tools Reference Guide, "Shared config and credentials files": sections, the
//! names of settings, and that variables take precedence over files, and the credentials file over
//! the config file. Keys in variables are used even if `AWS_PROFILE` names a profile, as `botocore`
//! does.

mod program;

use std::{
    collections::BTreeMap,
    fmt, io,
    path::PathBuf,
    time::{Duration, SystemTime},
};

use chrono::DateTime;

use crate::options::Options;

/// Why the profile of a user cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// A file exists and cannot be read.
    #[error("{}: cannot be read: {source}", .path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// `AWS_PROFILE` names a profile that is in no file.
    #[error(
        "AWS_PROFILE is `{profile}`, and neither ~/.aws/credentials nor ~/.aws/config has such a \
         profile; correct it, or unset it"
    )]
    Unknown {
        /// The name of the profile.
        profile: String,
    },
    /// The profile has no keys of its own, but names a source for them.
    #[error(
        "the AWS profile `{profile}` gets its keys by `{setting}`, which tierfeed does not do; \
         let `credential_process` of another profile be \
         `aws configure export-credentials --profile {profile} --format process` and name that by \
         AWS_PROFILE, or read the bucket anonymously"
    )]
    NoStaticKeys {
        /// The name of the profile, `default` if none is named.
        profile: String,
        /// The setting that names the source.
        setting: &'static str,
    },
    /// The profile has half of its keys.
    #[error(
        "the AWS profile `{profile}` has an `aws_access_key_id` without an `aws_secret_access_key`"
    )]
    NoSecret {
        /// The name of the profile.
        profile: String,
    },
    /// The program that makes keys made none.
    #[error("`credential_process` of the AWS profile `{profile}` {detail}")]
    Program {
        /// The name of the profile.
        profile: String,
        /// What went wrong, without what the program printed as keys.
        detail: String,
    },
}

/// Settings that name another source for the keys.
const INDIRECT: [&str; 6] = [
    "role_arn",
    "source_profile",
    "credential_source",
    "sso_session",
    "sso_start_url",
    "web_identity_token_file",
];

/// The variable that corresponds to a setting of a profile.
const SETTINGS: [(&str, &[&str], &str); 2] = [
    ("region", &["AWS_REGION", "AWS_DEFAULT_REGION"], "AWS_REGION"),
    ("endpoint_url", &["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"], "AWS_ENDPOINT_URL"),
];

const KEYS: [(&str, &str); 3] = [
    ("aws_access_key_id", "AWS_ACCESS_KEY_ID"),
    ("aws_secret_access_key", "AWS_SECRET_ACCESS_KEY"),
    ("aws_session_token", "AWS_SESSION_TOKEN"),
];

/// Variables that define the identity.
const IDENTITIES: [&str; 4] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
];

/// The names that tools give to the end of temporary keys, in profiles.
const EXPIRATIONS: [&str; 3] = ["aws_expiration", "expiration", "x_security_token_expires"];

/// A profile as its files have it.
#[derive(Debug)]
pub(crate) struct Profile {
    name: String,
    /// From the credentials file.
    credentials: BTreeMap<String, String>,
    /// From the config file.
    config: BTreeMap<String, String>,
}

/// The keys of a profile.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Keys {
    pub(crate) id: String,
    pub(crate) secret: String,
    pub(crate) token: Option<String>,
    /// When they end, as far as is known.
    pub(crate) expires: Option<SystemTime>,
    /// Whether `credential_process` made them.
    pub(crate) is_of_program: bool,
}

impl fmt::Debug for Keys {
    /// Prints no key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("expires", &self.expires).finish_non_exhaustive()
    }
}

impl Keys {
    /// By the names of their variables.
    pub(crate) fn options(&self) -> Options {
        let values = [Some(&self.id), Some(&self.secret), self.token.as_ref()];
        let named = KEYS.into_iter().zip(values);
        let named = named.filter_map(|((_, name), value)| Some((name.to_owned(), value?.clone())));
        Options(named.collect())
    }
}

impl Profile {
    /// Finds the profile that the variables name in the texts of both files.
    pub(crate) fn read(
        variables: &Options,
        credentials: &str,
        config: &str,
    ) -> Result<Self, ProfileError> {
        let named = variables.0.get("AWS_PROFILE").filter(|name| !name.is_empty());
        let name = named.map_or("default", String::as_str).to_owned();
        let config = section(config, |section| is_profile(section, &name));
        let credentials = section(credentials, |section| section == name);
        if named.is_some() && config.is_none() && credentials.is_none() {
            return Err(ProfileError::Unknown { profile: name });
        }
        let (credentials, config) = (credentials.unwrap_or_default(), config.unwrap_or_default());
        Ok(Self { name, credentials, config })
    }

    /// The credentials file takes precedence.
    fn setting(&self, name: &str) -> Option<&String> {
        self.credentials.get(name).or_else(|| self.config.get(name))
    }
}

/// The variables, completed by settings of the profile other than its keys.
pub(crate) fn complete(variables: &Options, profile: &Profile) -> Options {
    let mut options = variables.clone();
    for (setting, variables, variable) in SETTINGS {
        let is_set = variables.iter().any(|it| options.0.contains_key(*it));
        if let Some(value) = profile.setting(setting).filter(|_| !is_set) {
            options.0.insert(variable.to_owned(), value.clone());
        }
    }
    options
}

/// The keys of a profile: those of the credentials file, of its program, or of the config file, in the order of
/// `botocore`. `None` if variables name the identity, or the profile has none.
pub(crate) fn keys(variables: &Options, profile: &Profile) -> Result<Option<Keys>, ProfileError> {
    if IDENTITIES.iter().any(|it| variables.0.contains_key(*it)) {
        return Ok(None);
    }
    if let Some(keys) = written(profile, &profile.credentials)? {
        return Ok(Some(keys));
    }
    if let Some(command) = profile.setting("credential_process") {
        let failed = |detail| ProfileError::Program { profile: profile.name.clone(), detail };
        return program::keys(command).map(Some).map_err(failed);
    }
    if let Some(keys) = written(profile, &profile.config)? {
        return Ok(Some(keys));
    }
    match INDIRECT.into_iter().find(|it| profile.setting(it).is_some()) {
        None => Ok(None),
        Some(setting) => Err(ProfileError::NoStaticKeys { profile: profile.name.clone(), setting }),
    }
}

/// The keys that one file has of a profile.
fn written(
    profile: &Profile,
    settings: &BTreeMap<String, String>,
) -> Result<Option<Keys>, ProfileError> {
    let [id, secret, token] = KEYS.map(|(setting, _)| settings.get(setting).cloned());
    let Some(id) = id else { return Ok(None) };
    let secret = secret.ok_or_else(|| ProfileError::NoSecret { profile: profile.name.clone() })?;
    let expires = EXPIRATIONS.into_iter().find_map(|it| settings.get(it));
    let expires = expires.and_then(|text| time_of(text));
    Ok(Some(Keys { id, secret, token, expires, is_of_program: false }))
}

/// A point in time as RFC 3339 writes it; `None` for any other text.
pub(crate) fn time_of(text: &str) -> Option<SystemTime> {
    let time = DateTime::parse_from_rfc3339(text).ok()?.timestamp();
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(time).ok()?))
}

/// In the config file all but `default` have a word before their name.
fn is_profile(section: &str, profile: &str) -> bool {
    let mut words = section.split_whitespace();
    match (words.next(), words.next()) {
        (Some("profile"), Some(name)) => name.trim_matches('"') == profile,
        (Some("default"), None) => profile == "default",
        _ => false,
    }
}

/// The settings of the matching sections; `None` if there is no such section.
fn section(text: &str, is_meant: impl Fn(&str) -> bool) -> Option<BTreeMap<String, String>> {
    let mut found = None;
    let mut is_inside = false;
    for line in text.lines() {
        // Settings within settings are indented.
        if line.is_empty() || line.starts_with(['#', ';', ' ', '\t']) {
            continue;
        }
        if let Some((name, _)) = line.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            is_inside = is_meant(name.trim());
            if is_inside {
                found.get_or_insert_with(BTreeMap::new);
            }
        } else if let (true, Some((name, value))) = (is_inside, line.split_once('=')) {
            let value = value.split(" #").next().unwrap_or_default().trim();
            let settings = found.get_or_insert_with(BTreeMap::new);
            settings.insert(name.trim().to_ascii_lowercase(), value.to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const CREDENTIALS: &str = "\
# keys
[default]
aws_access_key_id = AKIADEFAULT
aws_secret_access_key=secret=with/equals
[lab]
aws_access_key_id = AKIALAB
aws_secret_access_key = lab-secret
aws_session_token = lab-token
";
    const CONFIG: &str = "\
[default]
region = eu-west-1 # near
s3 =
  endpoint_url = http://nested
[profile lab]
region = us-west-2
endpoint_url = http://10.0.0.1:9000
[profile work]
sso_session = company
region = eu-north-1
[sso-session company]
sso_start_url = https://example.com
";

    fn options(variables: &[(&str, &str)]) -> Options {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Options(variables.iter().map(owned).collect())
    }

    fn completed(
        variables: &[(&str, &str)],
        credentials: &str,
        config: &str,
    ) -> Result<Options, ProfileError> {
        let variables = options(variables);
        let profile = Profile::read(&variables, credentials, config)?;
        let keys = keys(&variables, &profile)?;
        let more = keys.map(|it| it.options()).unwrap_or_default();
        Ok(complete(&variables, &profile).with(more))
    }

    #[track_caller]
    fn check(variables: &[(&str, &str)], expected: &[(&str, &str)]) {
        let found = completed(variables, CREDENTIALS, CONFIG).unwrap();
        assert_eq!(found.0, options(&[variables, expected].concat()).0);
    }

    #[test]
    fn the_default_profile_gives_what_variables_leave_out() {
        let keys =
            [("AWS_ACCESS_KEY_ID", "AKIADEFAULT"), ("AWS_SECRET_ACCESS_KEY", "secret=with/equals")];
        check(&[], &[&keys[..], &[("AWS_REGION", "eu-west-1")]].concat());
        check(&[("AWS_DEFAULT_REGION", "eu-north-1")], &keys);
    }

    #[test]
    fn a_named_profile_gives_keys_region_and_endpoint() {
        let expected = [
            ("AWS_ACCESS_KEY_ID", "AKIALAB"),
            ("AWS_SECRET_ACCESS_KEY", "lab-secret"),
            ("AWS_SESSION_TOKEN", "lab-token"),
            ("AWS_REGION", "us-west-2"),
            ("AWS_ENDPOINT_URL", "http://10.0.0.1:9000"),
        ];
        check(&[("AWS_PROFILE", "lab")], &expected);
    }

    /// The server would refuse a key of one with the secret of the other.
    #[test]
    fn keys_are_never_mixed_of_variables_and_profile() {
        let variables =
            [("AWS_PROFILE", "lab"), ("AWS_ACCESS_KEY_ID", "A"), ("AWS_SECRET_ACCESS_KEY", "s")];
        let expected = [("AWS_REGION", "us-west-2"), ("AWS_ENDPOINT_URL", "http://10.0.0.1:9000")];
        check(&variables, &expected);
        let variables = [("AWS_WEB_IDENTITY_TOKEN_FILE", "/token"), ("AWS_PROFILE", "work")];
        check(&variables, &[("AWS_REGION", "eu-north-1")]);
    }

    #[test]
    fn a_profile_without_keys_is_refused_with_the_command_that_gets_them() {
        let error = completed(&[("AWS_PROFILE", "work")], CREDENTIALS, CONFIG).unwrap_err();
        assert!(matches!(&error, ProfileError::NoStaticKeys { setting: "sso_session", .. }));
        assert!(error.to_string().contains("export-credentials --profile work"), "{error}");
    }

    #[test]
    fn a_profile_that_is_not_there_is_named() {
        let error = completed(&[("AWS_PROFILE", "x")], CREDENTIALS, CONFIG).unwrap_err();
        assert!(matches!(&error, ProfileError::Unknown { profile } if profile == "x"), "{error}");
        assert_eq!(completed(&[], "", "").unwrap(), Options::default());
    }

    #[test]
    fn half_of_the_keys_are_none() {
        let half = "[default]\naws_access_key_id = A\n";
        let error = completed(&[], half, "[default]\naws_secret_access_key = s\n").unwrap_err();
        assert!(matches!(error, ProfileError::NoSecret { .. }), "{error}");
    }

    #[test]
    fn a_program_gives_keys_with_their_end_and_those_of_the_credentials_file_come_first() {
        let printed = r#"{"Version": 1, "AccessKeyId": "A", "SecretAccessKey": "s", "SessionToken": "t",
            "Expiration": "2026-11-27T23:05:29Z"}"#;
        let config =
            format!("[default]\ncredential_process = echo '{}'\n", printed.replace('\n', " "));
        let profile = Profile::read(&options(&[]), "", &config).unwrap();
        let found = keys(&options(&[]), &profile).unwrap().unwrap();
        assert_eq!((found.id.as_str(), found.secret.as_str()), ("A", "s"));
        assert_eq!(found.token.as_deref(), Some("t"));
        assert_eq!((found.expires, found.is_of_program), (time_of("2026-11-27T23:05:29Z"), true));
        check(
            &[],
            &[
                ("AWS_ACCESS_KEY_ID", "AKIADEFAULT"),
                ("AWS_SECRET_ACCESS_KEY", "secret=with/equals"),
                ("AWS_REGION", "eu-west-1"),
            ],
        );
        let both = Profile::read(&options(&[]), CREDENTIALS, &config).unwrap();
        assert_eq!(keys(&options(&[]), &both).unwrap().unwrap().id, "AKIADEFAULT");
    }

    #[test]
    fn a_program_that_makes_no_keys_is_an_error_that_prints_none() {
        for (command, said) in [
            ("echo no such user >&2; exit 3", "ended with exit status: 3: no such user"),
            ("echo secret", "printed no JSON"),
            (
                "echo '{\"Version\": 2, \"AccessKeyId\": \"secret\"}'",
                "printed no `SecretAccessKey`",
            ),
        ] {
            let config = format!("[default]\ncredential_process = {command}\n");
            let error = completed(&[], "", &config).unwrap_err().to_string();
            assert!(error.contains(said) && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn keys_end_at_the_time_that_the_file_says() {
        let at = |seconds| Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        for (text, expected) in [
            ("1970-01-01T00:00:00Z", at(0)),
            ("2026-11-27T23:05:29Z", at(1_795_820_729)),
            ("2026-11-27T23:05:29.123456Z", at(1_795_820_729)),
            ("2026-11-28T00:05:29+01:00", at(1_795_820_729)),
            ("2024-02-29 12:00:00-00:30", at(1_709_209_800)),
            ("2026-11-27", None),
            ("tomorrow at a quarter to nine", None),
            ("", None),
        ] {
            assert_eq!(time_of(text), expected, "{text}");
        }
        let file = "[default]\naws_access_key_id = A\naws_secret_access_key = s\naws_expiration = 1970-01-01T00:00:01Z\n";
        let profile = Profile::read(&options(&[]), file, "").unwrap();
        assert_eq!(keys(&options(&[]), &profile).unwrap().unwrap().expires, at(1));
    }
}
