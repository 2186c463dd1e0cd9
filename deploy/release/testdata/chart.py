"""Lints a chart, renders it with some values, and validates what Kubernetes would get. Prints JSON.

Usage: chart.py CHART VALUES…: each VALUES is a JSON object. The libraries are those of deploy/helm/requirements.txt:
Helm's own as a Python module, and the schemas of Kubernetes.
"""
import json
import sys

import helm_python
import kubernetes_validate
import yaml


def rendered(chart, values):
    try:
        chart.validate_schema(values)
        files = chart.render(values, name="demo", namespace="prod")
    except helm_python.HelmError as e:
        return {"error": str(e)}
    documents = []
    for name, text in sorted(files.items()):
        for document in yaml.safe_load_all(text) if name.endswith(".yaml") else []:
            if document:
                documents.append(document)
                if not document["apiVersion"].startswith("monitoring."):  # a type of the Prometheus Operator
                    kubernetes_validate.validate(document, "1.37", strict=True)
    return {"documents": documents}


lint = helm_python.lint(sys.argv[1])
with helm_python.Chart.load(sys.argv[1]) as chart:
    print(json.dumps({"lint": lint, "rendered": [rendered(chart, json.loads(v)) for v in sys.argv[2:]]}))
