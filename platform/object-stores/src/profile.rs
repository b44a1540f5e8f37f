//! Reads the AWS profile of a user: static keys, region and endpoint.
//!
//! # Source
//!
//! The AWS SDKs and Tools Reference Guide, "Shared config and credentials files": sections, the
//! names of settings, and that variables take precedence over files, and the credentials file over
//! the config file. Keys in variables are used even if `AWS_PROFILE` names a profile, as `botocore`
//! does.

use std::{collections::BTreeMap, io, path::PathBuf};

use crate::{address::Identity, options::Options};

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
         run `aws configure export-credentials --profile {profile} --format env` and set what it \
         prints, or read the bucket anonymously"
    )]
    NoStaticKeys {
        /// The name of the profile, `default` if none is named.
        profile: String,
        /// The setting that names the source.
        setting: &'static str,
    },
}

/// Settings that name another source for the keys.
const INDIRECT: [&str; 7] = [
    "role_arn",
    "source_profile",
    "credential_source",
    "credential_process",
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

/// Adds the settings of the profile to the variables.
pub(crate) fn complete(
    variables: &Options,
    identity: Identity,
    credentials: &str,
    config: &str,
) -> Result<Options, ProfileError> {
    let named = variables.0.get("AWS_PROFILE").filter(|name| !name.is_empty());
    let profile = named.map_or("default", String::as_str);
    let mut settings = section(config, |name| is_profile(name, profile));
    let own = section(credentials, |name| name == profile);
    if named.is_some() && settings.is_none() && own.is_none() {
        return Err(ProfileError::Unknown { profile: profile.to_owned() });
    }
    settings.get_or_insert_default().extend(own.unwrap_or_default());
    let settings = settings.unwrap_or_default();
    let mut options = variables.clone();
    for (setting, variables, variable) in SETTINGS {
        let is_set = variables.iter().any(|it| options.0.contains_key(*it));
        if let Some(value) = settings.get(setting).filter(|_| !is_set) {
            options.0.insert(variable.to_owned(), value.clone());
        }
    }
    let has_identity = IDENTITIES.iter().any(|it| options.0.contains_key(*it));
    if has_identity || identity == Identity::Anonymous {
        return Ok(options);
    }
    if !settings.contains_key("aws_access_key_id") {
        let indirect = INDIRECT.into_iter().find(|it| settings.contains_key(*it));
        let refused = |setting| ProfileError::NoStaticKeys { profile: profile.to_owned(), setting };
        return indirect.map_or(Ok(options), |setting| Err(refused(setting)));
    }
    for (setting, variable) in KEYS {
        if let Some(value) = settings.get(setting) {
            options.0.insert(variable.to_owned(), value.clone());
        }
    }
    Ok(options)
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

    #[track_caller]
    fn check(variables: &[(&str, &str)], expected: &[(&str, &str)]) {
        let found =
            complete(&options(variables), Identity::Configured, CREDENTIALS, CONFIG).unwrap();
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
        let error = complete(
            &options(&[("AWS_PROFILE", "work")]),
            Identity::Configured,
            CREDENTIALS,
            CONFIG,
        )
        .unwrap_err();
        assert!(matches!(&error, ProfileError::NoStaticKeys { setting: "sso_session", .. }));
        assert!(error.to_string().contains("export-credentials --profile work"), "{error}");
    }

    #[test]
    fn anonymous_reads_need_no_keys_but_a_region() {
        let variables = options(&[("AWS_PROFILE", "work")]);
        let found = complete(&variables, Identity::Anonymous, CREDENTIALS, CONFIG).unwrap();
        assert_eq!(found.0["AWS_REGION"], "eu-north-1");
        let variables = options(&[("AWS_PROFILE", "lab")]);
        let found = complete(&variables, Identity::Anonymous, CREDENTIALS, CONFIG).unwrap();
        assert!(!found.0.contains_key("AWS_SECRET_ACCESS_KEY"));
    }

    #[test]
    fn a_profile_that_is_not_there_is_named() {
        let error =
            complete(&options(&[("AWS_PROFILE", "x")]), Identity::Configured, CREDENTIALS, CONFIG)
                .unwrap_err();
        assert!(matches!(&error, ProfileError::Unknown { profile } if profile == "x"), "{error}");
        assert_eq!(
            complete(&options(&[]), Identity::Configured, "", "").unwrap(),
            Options::default()
        );
    }
}
