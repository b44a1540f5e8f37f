//! Decides which client speaks to a URL, and finds what there is to read.

use std::{sync::Arc, time::Duration};

use object_store::{
    ClientOptions, ObjectStore, ObjectStoreExt as _, ObjectStoreScheme, RetryConfig,
    aws::AmazonS3Builder, azure::MicrosoftAzureBuilder, gcp::GoogleCloudStorageBuilder,
    http::HttpBuilder, path::Path,
};
use tokio_stream::StreamExt as _;
use url::{Position, Url};

use super::{
    Identity, ObjectStoreError, Options, Request, error::Failure, error::scrubbed, run::Object,
};

/// How many objects are looked at: more would only make listing longer.
const OBJECTS_MAX: usize = 256;

/// A place in an object store.
pub(super) struct Bucket {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) prefix: Path,
    /// The URL, which holds no credentials.
    url: Url,
    listing: Listing,
    options: Options,
}

/// Whether the store can say what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Listing {
    Possible,
    /// A web server: the URL is that of an object.
    Impossible,
}

impl Bucket {
    pub(super) fn open(request: &Request) -> Result<Self, ObjectStoreError> {
        let url = plain_url(&request.url)?;
        let (scheme, prefix) = ObjectStoreScheme::parse(&url).map_err(|_| unknown(&url))?;
        let place = || url.to_string();
        let failed = |error: object_store::Error| ObjectStoreError::Settings {
            place: place(),
            detail: scrubbed(&error, &request.options),
        };
        use_tls();
        let mut listing = Listing::Possible;
        let store: Arc<dyn ObjectStore> = match scheme {
            ObjectStoreScheme::AmazonS3 => Arc::new(amazon(&url, request).map_err(failed)?),
            ObjectStoreScheme::GoogleCloudStorage => {
                Arc::new(google(&url, request).map_err(failed)?)
            }
            ObjectStoreScheme::MicrosoftAzure => Arc::new(azure(&url, request).map_err(failed)?),
            ObjectStoreScheme::Http if prefix.is_root() => {
                return Err(ObjectStoreError::NoObject { place: place() });
            }
            ObjectStoreScheme::Http => {
                listing = Listing::Impossible;
                Arc::new(http(&url).map_err(failed)?)
            }
            _ => return Err(unknown(&url)),
        };
        Ok(Self { store, prefix, url, listing, options: request.options.clone() })
    }

    pub(super) fn place(&self) -> String {
        self.url.to_string()
    }

    pub(super) fn explain(&self, failure: Failure) -> ObjectStoreError {
        failure.explain(self.place(), &self.options)
    }

    pub(super) fn scrubbed(&self, error: &object_store::Error) -> String {
        scrubbed(error, &self.options)
    }

    /// The objects under the prefix that hold a byte, or the one object that the prefix names.
    pub(super) async fn find(&self) -> Result<Vec<Object>, Failure> {
        let found = match self.listing {
            Listing::Possible => self.list().await?,
            Listing::Impossible => Vec::new(),
        };
        // Where something lies below it, the prefix is a folder and no object.
        let found = if found.is_empty() { self.named().await? } else { found };
        Ok(found.into_iter().filter(|object| object.len > 0).collect())
    }

    async fn list(&self) -> object_store::Result<Vec<Object>> {
        let mut objects = Vec::new();
        let mut listed = self.store.list(Some(&self.prefix)).take(OBJECTS_MAX);
        while let Some(found) = listed.next().await {
            let found = found?;
            objects.push(Object { path: found.location, len: found.size });
        }
        Ok(objects)
    }

    async fn named(&self) -> object_store::Result<Vec<Object>> {
        if self.prefix.is_root() {
            return Ok(Vec::new());
        }
        match self.store.head(&self.prefix).await {
            Ok(found) => Ok(vec![Object { path: found.location, len: found.size }]),
            // The bucket has been listed, so it is there, and empty under the prefix.
            Err(object_store::Error::NotFound { .. }) if self.listing == Listing::Possible => {
                Ok(Vec::new())
            }
            Err(error) => Err(error),
        }
    }
}

fn plain_url(text: &str) -> Result<Url, ObjectStoreError> {
    let url = Url::parse(text).map_err(ObjectStoreError::NoUrl)?;
    let has_user = !url.username().is_empty() || url.password().is_some();
    // In abfss://container@account the user is no user.
    if has_user && !url.scheme().starts_with("abfs") || url.query().is_some() {
        return Err(ObjectStoreError::Credentials);
    }
    if url.scheme() == "file" { Err(ObjectStoreError::Local) } else { Ok(url) }
}

fn unknown(url: &Url) -> ObjectStoreError {
    ObjectStoreError::Scheme { scheme: url.scheme().to_owned() }
}

/// The client library leaves the choice of TLS to the process. Somebody may have chosen before.
fn use_tls() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Few and short: what a request really takes is measured, and who waits for a wrong endpoint shall not
/// wait for minutes.
fn retries() -> RetryConfig {
    RetryConfig { max_retries: 2, retry_timeout: Duration::from_secs(10), ..RetryConfig::default() }
}

/// Endpoints without TLS are test servers and appliances, and were named on purpose.
fn allows_http(options: &Options) -> bool {
    options.0.values().any(|value| value.starts_with("http://"))
}

/// The three builders share their methods, but no trait.
macro_rules! configured {
    ($builder:ty, $url:expr, $request:expr) => {{
        let client = ClientOptions::new().with_allow_http(allows_http(&$request.options));
        let builder = <$builder>::new().with_client_options(client);
        let builder = builder.with_url($url.as_str()).with_retry(retries());
        let known = $request.options.0.iter().filter_map(|(name, value)| {
            Some((name.to_ascii_lowercase().parse().ok()?, value.as_str()))
        });
        let builder = known.fold(builder, |builder, (key, value)| builder.with_config(key, value));
        match $request.identity {
            Identity::Anonymous => builder.with_skip_signature(true),
            Identity::Configured => builder,
        }
    }};
}

fn amazon(url: &Url, request: &Request) -> object_store::Result<impl ObjectStore> {
    configured!(AmazonS3Builder, url, request).build()
}

fn google(url: &Url, request: &Request) -> object_store::Result<impl ObjectStore> {
    configured!(GoogleCloudStorageBuilder, url, request).build()
}

fn azure(url: &Url, request: &Request) -> object_store::Result<impl ObjectStore> {
    configured!(MicrosoftAzureBuilder, url, request).build()
}

fn http(url: &Url) -> object_store::Result<impl ObjectStore> {
    let options = ClientOptions::new().with_allow_http(url.scheme() == "http");
    let builder = HttpBuilder::new().with_url(&url[..Position::BeforePath]);
    builder.with_retry(retries()).with_client_options(options).build()
}
