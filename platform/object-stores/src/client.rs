//! Chooses the client for a URL, and sets it up.

use std::{
    fmt,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use object_store::{
    BackoffConfig, ClientConfigKey, ClientOptions, ObjectStore, ObjectStoreScheme, RetryConfig,
    aws::{AmazonS3Builder, AmazonS3ConfigKey},
    azure::{AzureConfigKey, MicrosoftAzureBuilder},
    gcp::{GoogleCloudStorageBuilder, GoogleConfigKey},
    http::HttpBuilder,
    list::PaginatedListStore,
    path::Path,
};
use url::{Position, Url};

use crate::{
    address::{Address, Identity},
    bounded::BoundedConnector,
    environment::Environment,
    error::{RequestError, scrubbed},
    keys::ProfileKeys,
    options::Options,
    profile::ProfileError,
};

/// Time limits and retries of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Time to establish the connection.
    pub connect: Duration,
    /// Time without a byte of an answer.
    pub silence: Duration,
    /// Number of retries after a temporary error or without an answer.
    pub retries: usize,
    /// Time after which there is no further retry.
    pub retry_time: Duration,
    /// Wait before the first retry; later ones wait longer.
    pub pause: Duration,
}

impl Patience {
    /// The same limits for a client whose caller retries itself.
    #[must_use]
    pub fn without_retries(self) -> Self {
        Self { retries: 0, ..self }
    }
}

impl Default for Patience {
    /// Limits for a store that recovers from overload within a minute.
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            silence: Duration::from_secs(20),
            retries: 8,
            retry_time: Duration::from_secs(60),
            pause: Duration::from_millis(100),
        }
    }
}

/// Why no client could be created for an address.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The text is no URL.
    #[error("an object store is named by a URL such as s3://bucket/prefix: {0}")]
    NoUrl(url::ParseError),
    /// The URL holds a user, a password or a query.
    #[error(
        "the URL of an object store holds credentials or a query; leave them out, and set the \
         variables of the provider (AWS_ACCESS_KEY_ID, AZURE_STORAGE_SAS_KEY, …) instead"
    )]
    Credentials,
    /// The URL has a `#`; the part behind it would not be sent.
    #[error("{place} ends at its `#`; write %23 for one that is part of a name")]
    Fragment {
        /// The URL of the address.
        place: String,
    },
    /// The URL names a directory.
    #[error("file:// is no object store; name the directory by its path")]
    Local,
    /// There is no client for such a URL.
    #[error("{scheme}:// is no object store; write s3://, gs://, az://, http:// or https://")]
    Scheme {
        /// The scheme, without `://`.
        scheme: String,
    },
    /// The URL has no bucket, or a path that no client can request.
    #[error(
        "{place} names no place in an object store; write a bucket and a prefix without empty \
         parts and without `.` and `..`, such as s3://bucket/prefix"
    )]
    Place {
        /// The URL of the address.
        place: String,
    },
    /// The options contradict each other or are incomplete.
    #[error("cannot set up a client for {place}: {detail}")]
    Settings {
        /// The URL of the bucket.
        place: String,
        /// The message of the client library, without secrets.
        detail: String,
    },
    /// The profile of the user cannot be used.
    #[error(transparent)]
    Profile(#[from] ProfileError),
}

/// A client for one place in an object store.
#[derive(Clone)]
pub struct Client {
    store: Arc<dyn ObjectStore>,
    pages: Option<Arc<dyn PaginatedListStore>>,
    prefix: Path,
    url: Url,
    options: Options,
    /// Those that are read again; `None` if the options have all.
    pub(crate) keys: Option<ProfileKeys>,
}

/// What requests are signed with beside the options.
#[derive(Debug, Default)]
struct Signing {
    keys: Option<ProfileKeys>,
    /// Set when a store refuses a request.
    is_refused: Arc<AtomicBool>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("url", &self.url.as_str()).finish_non_exhaustive()
    }
}

/// A store, and its listing interface if it has one.
type Opened = (Arc<dyn ObjectStore>, Option<Arc<dyn PaginatedListStore>>);

impl Client {
    /// Sets up a client with the user's settings. Sends no request yet.
    ///
    /// # Errors
    ///
    /// As [`Client::open`]; for AWS also if the profile cannot be used.
    pub fn open_in(
        environment: &Environment,
        address: &Address,
        patience: &Patience,
    ) -> Result<Self, OpenError> {
        let scheme = ObjectStoreScheme::parse(&plain_url(&address.url)?);
        if !matches!(scheme, Ok((ObjectStoreScheme::AmazonS3, _))) {
            return Self::open(address, &environment.variables, patience);
        }
        let is_refused = Arc::new(AtomicBool::new(false));
        let (options, keys) = environment.with_keys(address.access.identity)?;
        let keys =
            keys.map(|it| ProfileKeys::new(environment.clone(), it, Arc::clone(&is_refused)));
        Self::open_with(address, &options, patience, Signing { keys, is_refused })
    }

    /// Sets up a client. Sends no request yet.
    ///
    /// # Errors
    ///
    /// If the URL names no object store, or the options do not fit it.
    pub fn open(
        address: &Address,
        options: &Options,
        patience: &Patience,
    ) -> Result<Self, OpenError> {
        Self::open_with(address, options, patience, Signing::default())
    }

    fn open_with(
        address: &Address,
        options: &Options,
        patience: &Patience,
        signing: Signing,
    ) -> Result<Self, OpenError> {
        let url = plain_url(&address.url)?;
        let (scheme, prefix) = ObjectStoreScheme::parse(&url).map_err(|_| unknown(&url))?;
        use_tls();
        let setup = Setup { url: &url, address, options, patience, signing: &signing };
        let opened = match scheme {
            ObjectStoreScheme::AmazonS3 => setup.amazon(),
            ObjectStoreScheme::GoogleCloudStorage => setup.google(),
            ObjectStoreScheme::MicrosoftAzure => setup.azure(),
            ObjectStoreScheme::Http => setup.http(),
            _ => return Err(unknown(&url)),
        };
        let (store, pages) = opened.map_err(|error| OpenError::Settings {
            place: url.to_string(),
            detail: scrubbed(&error, options),
        })?;
        Ok(Self { store, pages, prefix, url, options: options.clone(), keys: signing.keys })
    }

    /// The interface that reads, writes and removes single objects.
    pub fn store(&self) -> &Arc<dyn ObjectStore> {
        &self.store
    }

    /// The interface that lists page by page; `None` for a web server, which has no listings.
    pub fn pages(&self) -> Option<&Arc<dyn PaginatedListStore>> {
        self.pages.as_ref()
    }

    /// The path behind the bucket, without a slash at its ends.
    pub fn prefix(&self) -> &Path {
        &self.prefix
    }

    /// The URL, which holds no credentials.
    pub fn place(&self) -> String {
        self.url.to_string()
    }

    /// The store's key of the object at `path` below the place; empty for the place itself. `None`
    /// if no client can request it, or it lies elsewhere.
    pub fn key(&self, path: &[u8]) -> Option<Path> {
        let name = str::from_utf8(path).ok()?;
        // The client would remove such a slash.
        if name.starts_with('/') || name.ends_with('/') {
            return None;
        }
        let key = match (name.is_empty(), self.prefix.is_root()) {
            (true, _) => return Some(self.prefix.clone()),
            (false, true) => Path::parse(name),
            (false, false) => Path::parse(format!("{}/{name}", self.prefix)),
        };
        key.ok()
    }

    /// The URL of the object at `path` below the place, for messages.
    pub fn place_of(&self, path: &[u8]) -> String {
        let place = self.place();
        if path.is_empty() {
            return place;
        }
        format!("{}/{}", place.trim_end_matches('/'), String::from_utf8_lossy(path))
    }

    /// Turns an error into a message for the user, without secrets.
    pub fn explain(&self, error: &object_store::Error) -> RequestError {
        RequestError::new(error, self.place(), &self.secrets())
    }

    /// As [`Self::explain`], for an error about one object.
    pub fn explain_object(&self, error: &object_store::Error, place: String) -> RequestError {
        RequestError::new(error, place, &self.secrets())
    }

    /// The text of an error and of its causes, without secrets.
    pub fn scrubbed(&self, error: &dyn std::error::Error) -> String {
        scrubbed(error, &self.secrets())
    }

    /// The options with the present keys, which no message may show.
    fn secrets(&self) -> Options {
        let keys = self.keys.as_ref().map(ProfileKeys::options).unwrap_or_default();
        self.options.clone().with(keys)
    }
}

fn plain_url(text: &str) -> Result<Url, OpenError> {
    let url = Url::parse(text).map_err(OpenError::NoUrl)?;
    let has_user = !url.username().is_empty() || url.password().is_some();
    // In abfss://container@account the user part is the container.
    if has_user && !url.scheme().starts_with("abfs") || url.query().is_some() {
        return Err(OpenError::Credentials);
    }
    if url.fragment().is_some() {
        return Err(OpenError::Fragment { place: url[..Position::AfterPath].to_owned() });
    }
    if url.scheme() == "file" { Err(OpenError::Local) } else { Ok(url) }
}

fn unknown(url: &Url) -> OpenError {
    const KNOWN: [&str; 10] =
        ["s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss", "http", "https"];
    if KNOWN.contains(&url.scheme()) {
        OpenError::Place { place: url.to_string() }
    } else {
        OpenError::Scheme { scheme: url.scheme().to_owned() }
    }
}

/// The client library leaves the choice of the TLS implementation to the process. Another library
/// may have chosen before.
fn use_tls() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

struct Setup<'a> {
    url: &'a Url,
    address: &'a Address,
    options: &'a Options,
    patience: &'a Patience,
    signing: &'a Signing,
}

/// The three builders share their methods, but no trait. `$more` are settings that override the
/// options; the first of `$endpoints` that is set is the one that the builder takes.
macro_rules! configured {
    ($setup:expr, $builder:ty, $key:ident, $more:expr, $endpoints:expr) => {{
        let setup = $setup;
        let builder = <$builder>::new().with_client_options(setup.client());
        let builder = builder.with_http_connector(setup.connector());
        let builder = builder.with_url(setup.url.as_str()).with_retry(setup.retries());
        let given = setup.options.0.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let more = $more.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let known = given.chain(more).filter_map(|(name, value): (&str, &str)| {
            Some((name.to_ascii_lowercase().parse().ok()?, value))
        });
        let builder = known.fold(builder, |builder, (key, value)| builder.with_config(key, value));
        let endpoint = $endpoints.iter().find_map(|key| builder.get_config_value(key));
        let builder = if endpoint.is_some_and(|it| is_plain(&it)) {
            builder.with_config($key::Client(ClientConfigKey::AllowHttp), "true")
        } else {
            builder
        };
        match setup.address.access.identity {
            Identity::Anonymous => builder.with_skip_signature(true),
            Identity::Configured => builder,
        }
    }};
}

impl Setup<'_> {
    fn amazon(&self) -> object_store::Result<Opened> {
        let builder = self.amazon_builder();
        let builder = match &self.signing.keys {
            Some(keys) => builder.with_credentials(Arc::new(keys.clone())),
            None => builder,
        };
        let store = Arc::new(builder.build()?);
        Ok((Arc::clone(&store) as _, Some(store)))
    }

    fn amazon_builder(&self) -> AmazonS3Builder {
        // The client library prefers the second one.
        let more = [
            ("aws_region", self.address.access.region.as_deref()),
            ("aws_endpoint_url_s3", self.address.access.endpoint.as_deref()),
        ];
        let endpoints = [AmazonS3ConfigKey::S3Endpoint, AmazonS3ConfigKey::Endpoint];
        configured!(self, AmazonS3Builder, AmazonS3ConfigKey, more, endpoints)
    }

    fn google(&self) -> object_store::Result<Opened> {
        let store = Arc::new(self.google_builder().build()?);
        Ok((Arc::clone(&store) as _, Some(store)))
    }

    fn google_builder(&self) -> GoogleCloudStorageBuilder {
        let more = [("google_base_url", self.address.access.endpoint.as_deref())];
        let endpoints = [GoogleConfigKey::BaseUrl];
        configured!(self, GoogleCloudStorageBuilder, GoogleConfigKey, more, endpoints)
    }

    fn azure(&self) -> object_store::Result<Opened> {
        let store = Arc::new(self.azure_builder().build()?);
        Ok((Arc::clone(&store) as _, Some(store)))
    }

    fn azure_builder(&self) -> MicrosoftAzureBuilder {
        let more = [("azure_storage_endpoint", self.address.access.endpoint.as_deref())];
        let endpoints = [AzureConfigKey::Endpoint];
        configured!(self, MicrosoftAzureBuilder, AzureConfigKey, more, endpoints)
    }

    fn http(&self) -> object_store::Result<Opened> {
        let client = self.client().with_allow_http(self.url.scheme() == "http");
        let builder = HttpBuilder::new().with_url(&self.url[..Position::BeforePath]);
        let builder = builder.with_http_connector(self.connector());
        let store = builder.with_retry(self.retries()).with_client_options(client).build()?;
        Ok((Arc::new(store), None))
    }

    fn connector(&self) -> BoundedConnector {
        BoundedConnector { is_refused: Arc::clone(&self.signing.is_refused) }
    }

    /// No limit on the total time: a large object may take long, as long as data arrives.
    fn client(&self) -> ClientOptions {
        ClientOptions::new()
            .with_connect_timeout(self.patience.connect)
            .with_read_timeout(self.patience.silence)
            .with_timeout_disabled()
    }

    fn retries(&self) -> RetryConfig {
        RetryConfig {
            max_retries: self.patience.retries,
            retry_timeout: self.patience.retry_time,
            backoff: BackoffConfig {
                init_backoff: self.patience.pause,
                ..BackoffConfig::default()
            },
        }
    }
}

/// Endpoints without TLS are test servers and appliances, and were named on purpose.
fn is_plain(endpoint: &str) -> bool {
    endpoint.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http://"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Access;

    /// Whether clients would send data, or follow a redirection, without TLS.
    fn allow_plain(endpoint: Option<&str>, variables: &[(&str, &str)]) -> [bool; 3] {
        let variables = variables.iter().map(|(key, value)| ((*key).into(), (*value).into()));
        let options = Options(variables.collect());
        let address = Address {
            url: "s3://bucket".to_owned(),
            access: Access {
                endpoint: endpoint.map(str::to_owned),
                region: None,
                identity: Identity::Anonymous,
            },
        };
        let (url, patience) = (Url::parse(&address.url).unwrap(), Patience::default());
        let signing = Signing::default();
        let (address, options, patience) = (&address, &options, &patience);
        let setup = Setup { url: &url, address, options, patience, signing: &signing };
        let key = ClientConfigKey::AllowHttp;
        [
            setup.amazon_builder().get_config_value(&AmazonS3ConfigKey::Client(key)),
            setup.google_builder().get_config_value(&GoogleConfigKey::Client(key)),
            setup.azure_builder().get_config_value(&AzureConfigKey::Client(key)),
        ]
        .map(|allowed| allowed.as_deref() == Some("true"))
    }

    #[test]
    fn only_an_endpoint_without_tls_allows_to_go_without_tls() {
        assert_eq!(allow_plain(None, &[]), [false; 3]);
        assert_eq!(allow_plain(Some("http://host:9000"), &[]), [true; 3]);
        assert_eq!(allow_plain(Some("HTTP://host:9000"), &[]), [true; 3]);
        assert_eq!(allow_plain(Some("https://host:9000"), &[]), [false; 3]);
        for name in ["AWS_ENDPOINT_URL_STS", "AWS_SESSION_TOKEN", "AWS_PROXY_URL", "AWS_SSO"] {
            assert_eq!(allow_plain(None, &[(name, "http://host")]), [false; 3], "{name}");
        }
        assert_eq!(allow_plain(None, &[("AWS_ENDPOINT_URL", "http://host")]), [true, false, false]);
        let both = [
            ("AWS_ENDPOINT_URL", "http://another-service"),
            ("AWS_ENDPOINT_URL_S3", "https://host"),
        ];
        assert_eq!(
            allow_plain(None, &both),
            [false; 3],
            "the endpoint of S3 is the one that counts"
        );
        assert_eq!(allow_plain(None, &[("AWS_ALLOW_HTTP", "true")]), [true, false, false]);
    }
}
