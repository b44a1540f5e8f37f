//! The keys of a profile, which are renewed while processes live that sign with them.
//!
//! SSO, `saml2aws` and `aws sts` write new keys into the files of the user every few hours. So keys are read again
//! after a store refused a request, and before they expire, and no request waits for that longer than for a file:
//! a program that makes keys runs on a thread of its own, and its result serves later requests.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, SystemTime},
};

use object_store::{CredentialProvider, aws::AwsCredential};

use crate::{
    environment::Environment,
    options::Options,
    profile::{Keys, ProfileError},
};

/// Keys are not read again before so much time has passed.
const READ_EVERY: Duration = Duration::from_secs(3);

/// Keys are read again so long before they expire.
const BEFORE_END: Duration = Duration::from_secs(5 * 60);

/// The keys that requests are signed with.
#[derive(Clone)]
pub(crate) struct ProfileKeys(Arc<Inner>);

struct Inner {
    environment: Environment,
    /// Whether a store refused a request since the keys were read.
    is_refused: Arc<AtomicBool>,
    /// Whether a thread reads them now.
    is_reading: AtomicBool,
    state: Mutex<State>,
}

struct State {
    keys: Keys,
    credential: Arc<AwsCredential>,
    read_at: SystemTime,
}

impl fmt::Debug for ProfileKeys {
    /// Prints no key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProfileKeys").finish_non_exhaustive()
    }
}

impl ProfileKeys {
    /// The keys of a profile that were read just now. They are read again after `is_refused` was set.
    pub(crate) fn new(environment: Environment, keys: Keys, is_refused: Arc<AtomicBool>) -> Self {
        let is_reading = AtomicBool::new(false);
        let state = Mutex::new(State::of(keys));
        Self(Arc::new(Inner { environment, is_refused, is_reading, state }))
    }

    /// The present keys by the names of their variables.
    pub(crate) fn options(&self) -> Options {
        self.0.state().keys.options()
    }

    fn renew_if_needed(&self) {
        let is_of_program = {
            let state = self.0.state();
            if !state.is_to_read(SystemTime::now(), self.0.is_refused.load(Ordering::Relaxed)) {
                return;
            }
            state.keys.is_of_program
        };
        if self.0.is_reading.swap(true, Ordering::Acquire) {
            return;
        }
        let inner = Arc::clone(&self.0);
        let read = move || inner.read();
        if !is_of_program {
            return read();
        }
        if thread::Builder::new().name("store-keys".to_owned()).spawn(read).is_err() {
            self.0.is_reading.store(false, Ordering::Release);
        }
    }
}

impl Inner {
    /// Reads the keys. Those that cannot be read stay as they are: a file is being written, or a program fails.
    fn read(&self) {
        self.is_refused.store(false, Ordering::Relaxed);
        let read: Result<Option<Keys>, ProfileError> = self.environment.profile_keys();
        let mut state = self.state();
        match read {
            Ok(Some(keys)) if keys != state.keys => *state = State::of(keys),
            _ => state.read_at = SystemTime::now(),
        }
        drop(state);
        self.is_reading.store(false, Ordering::Release);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn of(keys: Keys) -> Self {
        let credential = AwsCredential {
            key_id: keys.id.clone(),
            secret_key: keys.secret.clone(),
            token: keys.token.clone(),
        };
        Self { keys, credential: Arc::new(credential), read_at: SystemTime::now() }
    }

    fn is_to_read(&self, now: SystemTime, is_refused: bool) -> bool {
        // A clock that was set back counts as time that passed.
        let is_time = now.duration_since(self.read_at).map_or(true, |it| it >= READ_EVERY);
        let is_ending = self.keys.expires.is_some_and(|end| now + BEFORE_END >= end);
        is_time && (is_refused || is_ending)
    }
}

#[async_trait::async_trait]
impl CredentialProvider for ProfileKeys {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        self.renew_if_needed();
        Ok(Arc::clone(&self.0.state().credential))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(expires: Option<SystemTime>) -> Keys {
        let (id, secret) = ("AKIA".to_owned(), "secret".to_owned());
        Keys { id, secret, token: None, expires, is_of_program: false }
    }

    #[test]
    fn keys_are_read_again_when_refused_or_about_to_expire_and_not_too_often() {
        let state = State::of(keys(None));
        let after = |seconds| state.read_at + Duration::from_secs(seconds);
        assert!(!state.is_to_read(after(3600), false), "nothing is wrong with them");
        assert!(!state.is_to_read(after(2), true) && state.is_to_read(after(3), true));
        let state = State::of(keys(Some(after(3600))));
        assert!(!state.is_to_read(after(3600 - 301), false));
        assert!(state.is_to_read(after(3600 - 299), false) && state.is_to_read(after(4000), false));
    }

    #[cfg(feature = "test-server")]
    #[test]
    fn keys_that_a_store_refused_are_replaced_by_those_that_the_file_has_by_then() {
        use std::fs;

        use object_store::ObjectStoreExt as _;

        use crate::{
            Address, Client, Patience,
            test_server::{Access, KEY, SECRET, Server},
        };

        let server = Server::serving(Access::Signed);
        server.put("data/x", 3);
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join(".aws")).unwrap();
        let write = |id: &str, secret: &str| {
            let text =
                format!("[default]\naws_access_key_id = {id}\naws_secret_access_key = {secret}\n");
            fs::write(home.path().join(".aws/credentials"), text).unwrap();
        };
        write("AKIAOLD", "old-secret");
        let endpoint = ("AWS_ENDPOINT_URL".to_owned(), server.endpoint());
        let region = ("AWS_REGION".to_owned(), "us-east-1".to_owned());
        let variables = Options([endpoint, region].into());
        let environment = Environment { variables, home: Some(home.path().to_owned()) };
        let address = Address::from("s3://bucket/data".to_owned());
        let patience = Patience::default().without_retries();
        let client = Client::open_in(&environment, &address, &patience).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let key = client.key(b"x").unwrap();
        let asked = || runtime.block_on(client.store().get(&key));
        let error = asked().unwrap_err();
        assert!(client.explain(&error).is_refusal(), "{error}");
        write(KEY, SECRET);
        asked().unwrap_err();
        // As if some seconds had passed.
        let keys = client.keys.as_ref().unwrap();
        keys.0.state().read_at -= READ_EVERY;
        asked().unwrap();
        assert!(!client.scrubbed(&std::io::Error::other(SECRET)).contains(SECRET));
    }
}
