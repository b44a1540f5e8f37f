//! Serialises enums by their `name()`, so that messages, reports and job files share one table of names.

use alloc::{format, string::String};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use crate::{
    fleet::{State, members::Standing, schedule::Role},
    retention::{form::Form, in_place::InPlaceMode, policy},
    tier,
};

macro_rules! serialised_by_name {
    ($($type:ty),+) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(self.name())
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let name = String::deserialize(from)?;
                Self::ALL.into_iter().find(|it| it.name() == name).ok_or_else(|| {
                    let known = Self::ALL.map(Self::name).join(", ");
                    D::Error::custom(format!("{name:?} is none of {known}"))
                })
            }
        }
    )+};
}

serialised_by_name!(Form, Role, Standing, State, InPlaceMode, policy::Kind, tier::Kind);
