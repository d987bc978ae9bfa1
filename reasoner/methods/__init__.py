"""The methods: pure logic, records in and records out. No model, no Prefect, no files."""
