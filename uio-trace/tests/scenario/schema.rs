//! As much of JSON Schema as docs/records.schema.json uses: `$ref`, `oneOf`, `type`, `const`, `enum`, `properties`,
//! `required`, `additionalProperties`, `items`, `minimum`, `maximum`. Anything else in the schema is an error.

use serde_json::Value;

/// Why `value` does not fit `schema`; `None`: it does. `root` is the whole schema.
pub fn mismatch(root: &Value, schema: &Value, value: &Value, at: &str) -> Option<String> {
    let rules = schema.as_object().expect("a schema is an object");
    rules.iter().find_map(|(rule, arg)| match rule.as_str() {
        "$ref" => {
            let path = arg.as_str()?.trim_start_matches('#');
            mismatch(root, root.pointer(path).expect("$ref"), value, at)
        }
        "oneOf" => {
            let all = arg.as_array().expect("oneOf");
            let failures: Vec<String> = all.iter().filter_map(|s| mismatch(root, s, value, at)).collect();
            (failures.len() + 1 != all.len()).then(|| format!("{at} fits not exactly one of: {failures:#?}"))
        }
        "type" => {
            let names = arg.as_array().cloned().unwrap_or_else(|| vec![arg.clone()]);
            (!names.iter().any(|n| is(n.as_str().expect("type"), value)))
                .then(|| format!("{at} is {value}, not {arg}"))
        }
        "const" => (arg != value).then(|| format!("{at} is {value}, not {arg}")),
        "enum" => {
            (!arg.as_array().expect("enum").contains(value)).then(|| format!("{at} is {value}, not of {arg}"))
        }
        "minimum" => value
            .as_f64()
            .filter(|v| *v < arg.as_f64().expect("minimum"))
            .map(|v| format!("{at} is {v}")),
        "maximum" => value
            .as_f64()
            .filter(|v| *v > arg.as_f64().expect("maximum"))
            .map(|v| format!("{at} is {v}")),
        "items" => value
            .as_array()?
            .iter()
            .enumerate()
            .find_map(|(i, v)| mismatch(root, arg, v, &format!("{at}[{i}]"))),
        "required" => arg
            .as_array()
            .expect("required")
            .iter()
            .find(|name| value.get(name.as_str().expect("a name")).is_none())
            .map(|name| format!("{at} has no {name}")),
        "properties" => arg
            .as_object()
            .expect("properties")
            .iter()
            .find_map(|(name, s)| mismatch(root, s, value.get(name)?, &format!("{at}.{name}"))),
        "additionalProperties" => {
            let known = |name: &str| schema.get("properties").is_some_and(|p| p.get(name).is_some());
            value
                .as_object()?
                .iter()
                .filter(|(name, _)| !known(name))
                .find_map(|(name, v)| match arg {
                    Value::Bool(false) => Some(format!("{at} has {name}, which is not described")),
                    s => mismatch(root, s, v, &format!("{at}.{name}")),
                })
        }
        "$schema" | "title" | "$defs" => None,
        other => panic!("the schema uses {other}"),
    })
}

fn is(name: &str, value: &Value) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("the schema uses type {other}"),
    }
}
