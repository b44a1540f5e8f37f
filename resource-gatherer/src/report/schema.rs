//! The JSON schema of a report, for programs in any language.

/// The schema, draft 2020-12. It asks for what tools rely on, allows keys that it does not know, and
/// describes every key that is written today.
pub const SCHEMA: &str = include_str!("../../schema/tiers.schema.json");

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        inventory::Inventory,
        report::tests_support::{assert_valid, full, minimal, validator},
        sysroot::Sysroot,
        tests_support::FakeSysroot,
    };

    /// Changes the value at `pointer` of a whole report, and expects the schema to notice.
    fn refuses(pointer: &str, value: Value) {
        let mut document = serde_json::to_value(full()).unwrap();
        let place = document.pointer_mut(pointer);
        *place.unwrap_or_else(|| panic!("the report has no {pointer}")) = value;
        assert!(!validator().is_valid(&document), "{pointer} may be anything");
    }

    #[test]
    fn a_full_and_an_empty_report_are_valid() {
        assert_valid(&full());
        for machine in [FakeSysroot::bare(), FakeSysroot::cxl_node()] {
            assert_valid(&minimal(&Inventory::read(Sysroot(machine.path())).unwrap()));
        }
    }

    #[test]
    fn every_key_that_the_contract_names_is_required() {
        let contract = [
            ("", &["host", "tiers", "numa"][..]),
            (
                "/tiers/0",
                &[
                    "name",
                    "kind",
                    "numa_node",
                    "path",
                    "capacity_bytes",
                    "read_bytes_per_s",
                    "write_bytes_per_s",
                    "copy_bytes_per_s",
                    "triad_bytes_per_s",
                    "idle_latency_ns",
                    "loaded_latency_ns",
                    "random_read_iops",
                    "emulated",
                    "quality",
                ],
            ),
            ("/tiers/0/quality", &["converged", "contended"]),
            ("/numa", &["nodes", "latency_ns", "read_bytes_per_s"]),
        ];
        let validator = validator();
        for (pointer, keys) in contract {
            for key in keys {
                let mut document = serde_json::to_value(full()).unwrap();
                let place = document.pointer_mut(pointer).unwrap().as_object_mut().unwrap();
                assert!(place.remove(*key).is_some(), "{pointer}/{key} is not written");
                assert!(!validator.is_valid(&document), "{pointer}/{key} may be missing");
            }
        }
    }

    #[test]
    fn what_is_no_report_is_refused() {
        refuses("/format", json!(1));
        refuses("/tiers/0/kind", json!("tape"));
        refuses("/tiers/0/read_bytes_per_s", json!("12 GB/s"));
        refuses("/tiers/0/idle_latency_ns", json!(-1.0));
        refuses("/tiers/1/source", json!("guessed"));
        refuses("/tiers/0/estimates/idle_latency_ns/converged", Value::Null);
        refuses("/numa/nodes", json!([0, 0]));
        refuses("/numa/latency_ns/0/0", json!("100"));
        refuses("/pairs/0/bandwidth/0/traffic", json!("dance"));
        refuses("/pairs/0/loaded_latency/0/points/0/generators", json!(1.5));
        refuses("/storage/0/engine", json!("tape"));
        refuses("/storage/0/random_reads/0/latency/p50_ns", json!("81 us"));
        refuses("/object_stores/0/throughput/0/requests", json!(0));
        refuses("/transfers/0/threads", json!(0));
        refuses("/views/0/tiers/0", json!([]));
        refuses("/comparisons/0/figure", json!("rumour"));
        refuses("/skipped/0", json!("something"));
        refuses("/inventory/nodes", json!([]));
    }

    #[test]
    fn a_key_that_the_schema_does_not_know_is_allowed() {
        let mut document = serde_json::to_value(full()).unwrap();
        document["tiers"][0]["colour"] = json!("green");
        assert!(validator().is_valid(&document));
    }

    /// The schema is open, so a renamed key would pass: here it does not.
    #[test]
    fn every_key_that_is_written_is_described_and_has_a_unit_or_needs_none() {
        let schema: Value = serde_json::from_str(SCHEMA).unwrap();
        let mut document = serde_json::to_value(full()).unwrap();
        // It has a structure of its own, which the schema leaves to those who read it.
        document.as_object_mut().unwrap().remove("inventory");
        described(&schema, &schema, &document, "");
    }

    fn described(root: &Value, schema: &Value, value: &Value, path: &str) {
        let schema = resolve(root, schema);
        match value {
            Value::Object(members) => {
                for (key, member) in members {
                    let path = format!("{path}/{key}");
                    let inner = &schema["properties"][key];
                    assert!(inner.is_object(), "{path} is not in the schema");
                    assert!(
                        resolve(root, inner)["description"].is_string(),
                        "{path} is not described"
                    );
                    described(root, inner, member, &path);
                }
            }
            Value::Array(items) => {
                for item in items {
                    described(root, &schema["items"], item, path);
                }
            }
            _ => (),
        }
    }

    /// Follows a reference, or the first of a choice.
    fn resolve<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
        if let Some(name) = schema["$ref"].as_str() {
            return resolve(root, root.pointer(name.trim_start_matches('#')).unwrap());
        }
        match schema["anyOf"].get(0) {
            Some(first) => resolve(root, first),
            None => schema,
        }
    }
}
